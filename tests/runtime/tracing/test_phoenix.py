"""A real Arize Phoenix shows what we send; `make phoenix` installs it, and elsewhere it is skipped.

`CAESURA_TEST_PHOENIX_URL` may name one that runs already.
"""

import asyncio
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider

from caesura.runtime.receiver import receiver_in
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say
from caesura.runtime.tracing.content import CAPTURE
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.tracing import exporter_of, phases_of, service
from caesura.tools.calculator.tool import calculator
from tests.kit.spans import Spans

URL = os.environ.get("CAESURA_TEST_PHOENIX_URL", "")
PHOENIX = Path(__file__).parents[3] / ".cache" / "phoenix" / "bin" / "phoenix"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not URL and not PHOENIX.is_file(), reason="no Phoenix: run `make phoenix`"),
]


@pytest.fixture
async def phoenix(tmp_path: Path) -> AsyncIterator[str]:
    """The address of a Phoenix that takes spans."""
    if URL:
        yield URL
        return
    port, other = free_port(), free_port()
    environ = os.environ | {
        "PHOENIX_WORKING_DIR": str(tmp_path),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(other),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    environ.pop("PYTHONPATH", None)
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PHOENIX, "serve", env=environ, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as http:
            while not await answers(http, f"{url}/healthz"):
                if process.returncode is not None:
                    pytest.fail((tmp_path / "log").read_text(errors="replace")[-4000:])
                await asyncio.sleep(0.2)
        yield url
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


async def answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def fetched(url: str, path: str, enough: Callable[[list[Any]], bool]) -> list[Any]:
    """What a route of Phoenix's lists, once it is enough: spans are written in batches."""
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.get(f"{url}/v1/{path}", params={"limit": 100}) as response:
                found = (await response.json())["data"] if response.status == 200 else []
            if enough(found):
                return list(found)
            await asyncio.sleep(0.2)


async def test_phoenix_shows_the_spans(
    phoenix: str, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = f"caesura-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv(CAPTURE, "true")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"openinference.project.name={project}")
    receiver = receiver_in({"OTEL_EXPORTER_OTLP_ENDPOINT": phoenix})
    assert receiver is not None
    exports = Exports(lambda: exporter_of(receiver), phoenix, {})
    provider = TracerProvider(resource=service(), shutdown_on_exit=False)
    provider.add_span_processor(exports)
    provider.add_span_processor(spans.processor)
    script: Any = [call("calculator", expression="1+1"), say("2")]
    agent = Agent(ScriptedEngine(script, model="m"), [calculator], tracing=provider, name="adder")
    async with agent.session() as session:
        await session.run("1+1?")
    first, second = spans.named("chat")
    phases = phases_of(provider)
    assert phases is not None
    phases.take(0, [lanes(times_of(first), times_of(second))])
    assert await asyncio.to_thread(exports.force_flush)
    assert exports.dropped == 0

    found = await fetched(phoenix, f"projects/{project}/spans", lambda found: len(found) >= 9)
    by_name = {each["name"]: each for each in found}
    kinds = {name: each["span_kind"] for name, each in by_name.items()}
    assert kinds == {
        "invoke_agent adder": "AGENT",
        "chat m": "LLM",
        "execute_tool calculator": "TOOL",
        **dict.fromkeys(("queue", "prefill", "decode", "pause"), "CHAIN"),
    }
    run = by_name["invoke_agent adder"]
    chats = {e["context"]["span_id"]: e["attributes"] for e in found if e["name"] == "chat m"}
    assert by_name["decode"]["parent_id"] in chats
    assert by_name["pause"]["parent_id"] == run["context"]["span_id"]
    assert by_name["pause"]["attributes"]["caesura.kv.state"] == "device"
    told = chats[f"{context_of(second):016x}"]
    assert told["llm.token_count.prompt_details.cache_read"] > 0
    assert told["llm.token_count.prompt"] > told["llm.token_count.prompt_details.cache_read"]
    roles = [told[f"llm.input_messages.{index}.message.role"] for index in range(3)]
    assert roles == ["user", "assistant", "tool"]
    sessions = await fetched(phoenix, f"projects/{project}/sessions", bool)
    assert [each["session_id"] for each in sessions] == [session.id]
    await asyncio.to_thread(exports.shutdown)


def context_of(span: Any) -> int:
    return int(span.context.span_id)


def times_of(span: Any) -> tuple[int, int]:
    return span.start_time, span.end_time


def lanes(first: tuple[int, int], second: tuple[int, int]) -> dict[str, Any]:
    """The records of a request that queues, runs, pauses and runs again; Unix nanoseconds."""
    states = ("waiting", "prefill", "decode", "paused", "decode", "ended")
    at = [first[0] + (first[1] - first[0]) * part // 5 for part in range(1, 5)]
    at += [second[0] + (second[1] - second[0]) * part // 3 for part in range(1, 3)]
    return {
        "kind": "lanes",
        "request": ["scripted-1-a"] * len(states),
        "state": list(states),
        "at": [each / 1e9 for each in at],
    }
