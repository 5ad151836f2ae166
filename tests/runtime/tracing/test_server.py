"""Trace context through the endpoint: in from a client, out to what its tools ask."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import StatusCode

from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.server import create_app
from caesura.runtime.server.app import Application, ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.runtime.tracing.export import Exports
from caesura.tools import tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.mcp import MCPServer
from caesura.tools.net import HttpClient, Outgoing
from caesura.tools.registry import Registry
from caesura.tools.services import SetupError
from tests.kit.spans import Spans, facts
from tests.kit.waiting import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "their=own"}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Go."}]}
MCP_SERVER = str(Path(__file__).with_name("mcp_server.py"))


@asynccontextmanager
async def served(app: Application) -> AsyncIterator[ClientSession]:
    async with listening(app) as port, ClientSession(f"http://127.0.0.1:{port}") as client:
        yield client


def ids(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}-{span.context.span_id:016x}"


async def test_context_goes_in_and_out_to_http_tools(spans: Spans) -> None:
    seen: list[dict[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response("fine")

    site = web.Application()
    site.router.add_get("/", answer)
    http = HttpClient(allow_private=True)
    async with TestServer(site) as asked:

        @tool
        async def fetch() -> str:
            """Fetch."""
            return str(await http.json(Outgoing(str(asked.make_url("/")))))

        engine = ScriptedEngine([call("fetch"), say("Fetched.")], model="m")
        app = create_app(engine, Registry([fetch]), parts=ServerParts(tracing=spans.processor))
        async with served(app) as client:
            body = ASKED | {"server_tools": ["fetch"]}
            async with client.post("/v1/chat/completions", json=body, headers=HEADERS) as response:
                answered = await response.json()
        await http.json(Outgoing(str(asked.make_url("/"))))  # of nobody's call
    await http.aclose()

    run = spans.one("invoke_agent")
    assert ids(run).startswith(TRACE)
    assert run.parent is not None and f"{run.parent.span_id:016x}" == PARENT
    assert facts(run)["gen_ai.response.id"] == answered["id"]
    inside, outside = seen
    assert inside["traceparent"].startswith(f"00-{ids(spans.one('execute_tool fetch'))}-")
    assert inside["tracestate"] == "their=own"
    assert "traceparent" not in outside


@pytest.mark.parametrize("traceparent", ["", "rubbish", f"00-{'0' * 32}-{PARENT}-01"])
async def test_a_bad_context_begins_a_new_trace(spans: Spans, traceparent: str) -> None:
    app = create_app(
        ScriptedEngine([say("Hi.")], model="m"),
        Registry(),
        parts=ServerParts(tracing=spans.processor),
    )
    async with served(app) as client:
        headers = {"traceparent": traceparent}
        async with client.post("/v1/chat/completions", json=ASKED, headers=headers) as response:
            assert response.status == 200
    assert spans.one("invoke_agent").parent is None


async def test_a_client_that_leaves_ends_every_span(
    spans: Spans, serve_script: Callable[..., Any], hanging: Any
) -> None:
    served = await serve_script([call("hang")], [hanging.tool], tracing=spans.processor)
    asking = asyncio.create_task(served.chat(server_tools=["hang"]))
    await hanging.started.wait()
    asking.cancel()
    await until(lambda: spans.named("invoke_agent"))
    for name in ("execute_tool hang", "invoke_agent"):
        assert spans.one(name).status.status_code is StatusCode.ERROR
        assert facts(spans.one(name))["error.type"] == "cancelled"


async def test_a_clients_own_tools_end_the_run(spans: Spans, serve_script: Any) -> None:
    served = await serve_script([call("theirs", x=1)], tracing=spans.processor)
    theirs = {"type": "function", "function": {"name": "theirs", "parameters": {}}}
    status, _ = await served.chat(tools=[theirs])
    assert status == 200
    assert facts(spans.one("invoke_agent"))["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert spans.named("execute_tool") == []  # the client runs it


async def test_a_response_has_the_spans_of_a_run(spans: Spans, serve_script: Any) -> None:
    served = await serve_script([say("Hi.")], tracing=spans.processor)
    body = {"model": "tiny/scripted", "input": "Hello"}
    async with served.http.post("/v1/responses", json=body, headers=HEADERS) as response:
        answered = await response.json()
    run = spans.one("invoke_agent")
    assert ids(run).startswith(TRACE)
    assert facts(run)["gen_ai.response.id"] == answered["id"]
    assert spans.named("chat")


async def test_a_run_leads_back_to_the_page(spans: Spans, tmp_path: Path) -> None:
    with Recorder(Store(tmp_path / "traces.sqlite")) as recorder:
        options = ServerOptions(public_url="https://llm.example.com/")
        parts = ServerParts(tracing=spans.processor, recorder=recorder)
        engine = ScriptedEngine([say("Hi.")], model="m")
        async with (
            served(create_app(engine, Registry(), options, parts)) as client,
            client.post("/v1/chat/completions", json=ASKED) as response,
        ):
            answered, header = await response.json(), response.headers["Caesura-Trace"]
    assert facts(spans.one("invoke_agent"))["caesura.url"] == header
    assert header.startswith(f"https://llm.example.com/ui/#/session/{answered['id']}?rec=1-")


async def test_without_a_public_address_there_is_no_link(spans: Spans, tmp_path: Path) -> None:
    with Recorder(Store(tmp_path / "traces.sqlite")) as recorder:
        parts = ServerParts(tracing=spans.processor, recorder=recorder)
        engine = ScriptedEngine([say("Hi.")], model="m")
        async with (
            served(create_app(engine, Registry(), parts=parts)) as client,
            client.post("/v1/chat/completions", json=ASKED) as response,
        ):
            assert response.headers["Caesura-Trace"].startswith("/ui/#/session/")
    assert "caesura.url" not in facts(spans.one("invoke_agent"))


@pytest.mark.parametrize("url", ["llm.example.com", "ftp://x", "https://x/?y", "https://x/#y"])
def test_a_public_address_is_one_of_the_web(url: str, tmp_path: Path) -> None:
    file = tmp_path / "caesura.toml"
    file.write_text(f'[trace]\npublic_url = "{url}"\n')
    with pytest.raises(SetupError, match="public_url"):
        Config.load(file)


async def test_dropped_spans_are_counted_in_the_metrics(serve_script: Any) -> None:
    def make() -> Any:
        raise ConnectionError("down")

    exports = Exports(make, "nowhere", {})
    served = await serve_script([say("Hi.")], tracing=exports)
    await served.chat()
    await asyncio.to_thread(exports.force_flush)
    assert "caesura_spans_dropped_total 2.0" in await served.metrics()
    await asyncio.to_thread(exports.shutdown)
    plain = await serve_script([say("Hi.")], tracing=False)
    assert "spans_dropped" not in await plain.metrics()


# -- out to MCP servers ----------------------------------------------------------------------------


async def told(spans: Spans, server: MCPServer) -> dict[str, str | None]:
    """What the server was told of the call's trace."""
    provider = TracerProvider()
    provider.add_span_processor(spans.processor)
    engine = ScriptedEngine([call("told"), say("Told.")], model="m")
    async with Agent(engine, [server], tracing=provider) as agent:
        answer = await agent.run("Go.")
    return dict(json.loads(answer.calls[0][1].content))


async def test_context_goes_out_to_mcp_servers_over_stdio(spans: Spans) -> None:
    said = await told(spans, MCPServer("s", command=sys.executable, args=[MCP_SERVER]))
    assert str(said["meta"]).startswith(f"00-{ids(spans.one('execute_tool told'))}-")


@pytest.mark.slow
async def test_context_goes_out_to_mcp_servers_over_http(spans: Spans) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, MCP_SERVER, str(port)), stderr=asyncio.subprocess.DEVNULL
    )
    try:
        for _ in range(3000):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.01)
        said = await told(spans, MCPServer("h", url=f"http://127.0.0.1:{port}/mcp"))
    finally:
        process.kill()
        await process.wait()
    here = f"00-{ids(spans.one('execute_tool told'))}-"
    assert str(said["meta"]).startswith(here)
    assert str(said["header"]).startswith(here)
