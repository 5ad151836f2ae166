"""Servers over streamable HTTP: the library's own, and one that misbehaves."""

import asyncio
import gzip
import json
import socket
import sys
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from caesura.tools.artifacts import ArtifactStore
from caesura.tools.dispatch.dispatcher import Dispatcher
from caesura.tools.mcp import MCPServer
from caesura.tools.registry import Registry
from caesura.tools.result import ToolCall
from caesura.tools.services import SetupError
from tests.tools.mcp.calls import HERE, PNG, Caller, until

MAX_BYTES = 100_000


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@asynccontextmanager
async def running(port: int):
    """The library's server on that port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "server.py"), "http", str(port)),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_the_librarys_own_server(tmp_path, monkeypatch):
    monkeypatch.setattr("caesura.tools.mcp.server.LONGEST_PAUSE_SECONDS", 0.2)
    port = free_port()
    store = ArtifactStore(tmp_path)
    url = f"http://127.0.0.1:{port}/mcp"
    server = MCPServer("web", url=url, artifacts=store, required=False, restarts=1000)
    async with running(port) as process, server:
        call = Caller(server)
        await until(lambda: server.tools, bool)
        assert (await call("add", a=1, b=2)).content == "3"
        picture, _ = (await call("picture")).artifacts
        assert picture.path.read_bytes() == PNG
        async with Dispatcher(Registry(server.tools)) as dispatcher:
            task = dispatcher.start(ToolCall("1", "wait", '{"seconds": 60}'))
            await until(lambda: call("was_begun"), lambda result: result.content == "1")
            await dispatcher.cancel()
            assert (await task).error == "cancelled"
        await until(lambda: call("was_cancelled"), lambda result: result.content == "1")
        await call("learn", name="taught")
        await until(lambda: server.tools[-1].name, lambda name: name == "taught")
        process.kill()
        await process.wait()
        await until(
            lambda: call("add", a=1, b=2), lambda result: "is not connected" in result.content
        )
        async with running(port):
            await until(lambda: call("add", a=1, b=2), lambda result: result.content == "3")


class Misbehaving:
    """A server of the 2025 protocol over HTTP, whose tools are its ways to misbehave."""

    NAMES = (
        *("fine", "giant", "bomb", "text", "html", "empty", "error", "missing", "elsewhere"),
        *("accepted", "never", "wrong_type", "not_json", "events", "endless_event", "cut"),
    )

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.cancelled: list[object] = []
        self.silent = False

    async def post(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        message = await request.json()
        number, method = message.get("id"), message["method"]
        if method == "notifications/cancelled":
            self.cancelled.append(message["params"]["requestId"])
        if number is None:
            return web.Response(status=202)
        match method:
            case "initialize":
                if self.silent:
                    await asyncio.sleep(60)
                response = self.result(
                    number,
                    {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "misbehaving", "version": "1"},
                    },
                )
                response.headers["Mcp-Session-Id"] = f"session-{len(self.headers)}"
                return response
            case "tools/list":
                names = [{"name": name, "inputSchema": {"type": "object"}} for name in self.NAMES]
                return self.result(number, {"tools": names})
            case "tools/call":
                return await self.call(request, number, message["params"]["name"])
        error = {"code": -32601, "message": "no"}
        return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})

    def result(self, number: object, value: object) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": value})

    async def call(self, request: web.Request, number: object, name: str) -> web.StreamResponse:
        large = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": number,
                "result": {"content": [{"type": "text", "text": "x" * 10 * MAX_BYTES}]},
            }
        ).encode()
        json_type = {"Content-Type": "application/json"}
        answers: dict[str, web.Response] = {
            "giant": web.Response(body=large, headers=json_type),
            "bomb": web.Response(
                body=gzip.compress(large), headers=json_type | {"Content-Encoding": "gzip"}
            ),
            "text": web.Response(text="hello"),
            "html": web.Response(text="<p>", content_type="text/html", status=502),
            "empty": web.Response(body=b"", headers=json_type),
            "error": web.Response(status=500),
            "missing": web.Response(status=404),
            "elsewhere": web.Response(status=307, headers={"Location": "http://example.com/mcp"}),
            "accepted": web.Response(status=202),
            "wrong_type": self.result(number, [1]),
            "not_json": web.Response(body=b"\xff{", headers=json_type),
        }
        if name in answers:
            return answers[name]
        if name == "never":
            await asyncio.sleep(60)
        if name == "fine":
            return self.result(number, {"content": [{"type": "text", "text": "fine"}]})
        return await self.stream(request, number, name)

    async def stream(self, request: web.Request, number: object, name: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(
            b"event: message\ndata: nonsense\n\n" if name == "events" else b": hi\n\n"
        )
        if name == "endless_event":
            for _ in range(2 * MAX_BYTES // 1000):
                await response.write(b"data: " + b"x" * 1000 + b"\n")
        if name == "cut":
            assert request.transport is not None
            request.transport.close()
        return response


@pytest.fixture
async def misbehaving():
    """The server's url and itself."""
    server = Misbehaving()
    app = web.Application()
    app.router.add_post("/mcp", server.post)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{site.port}/mcp", server
    await runner.cleanup()


async def test_hostile_answers_are_errors_and_the_next_call_works(misbehaving, monkeypatch):
    monkeypatch.setattr("caesura.tools.mcp.server.LONGEST_PAUSE_SECONDS", 0.05)
    url, told = misbehaving
    settings = {"max_message_bytes": MAX_BYTES, "timeout_seconds": 1.0, "restarts": 1000}
    async with MCPServer("web", url=url, **settings) as server:
        call = Caller(server)
        for name in Misbehaving.NAMES[1:]:
            result = await call(name)
            assert result.error in ("failed", "timeout"), name
            assert len(result.content) < 1000, name
            if name in ("giant", "endless_event"):
                assert (
                    str(MAX_BYTES) in result.content or "was lost during the call" in result.content
                )
            await until(lambda: call("fine"), lambda result: result.content == "fine")
    assert told.cancelled  # the call that was never answered


async def test_headers_are_sent_with_their_variables(misbehaving, monkeypatch):
    monkeypatch.setenv("TOKEN", "abc")
    url, told = misbehaving
    async with MCPServer("web", url=url, headers={"Authorization": "Bearer ${TOKEN}"}):
        pass
    assert {headers["Authorization"] for headers in told.headers} == {"Bearer abc"}
    assert {headers["Accept-Encoding"] for headers in told.headers} == {"identity"}


async def test_a_session_that_the_server_has_forgotten_is_replaced(misbehaving):
    url, told = misbehaving
    async with MCPServer("web", url=url) as server:
        call = Caller(server)
        assert (
            "was lost during the call" in (await call("missing")).content
        )  # 404, within a session
        await until(lambda: call("fine"), lambda result: result.content == "fine")
    sessions = {headers.get("mcp-session-id") for headers in told.headers} - {None}
    assert len(sessions) == 2


async def test_one_that_never_answers(misbehaving):
    url, told = misbehaving
    told.silent = True
    with pytest.raises(SetupError, match=r"no answer within 0\.5 seconds"):
        await MCPServer("web", url=url, start_seconds=0.5).start()


async def test_no_server_listens():
    with pytest.raises(SetupError, match="the MCP server 'web' does not start"):
        await MCPServer("web", url=f"http://127.0.0.1:{free_port()}/mcp").start()
