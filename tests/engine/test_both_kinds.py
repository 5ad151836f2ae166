"""Tools of the client and of the server in one request, over HTTP on the real engine."""

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from caesura.runtime.launch import CPU_BLOCK_SIZE, record
from caesura.runtime.recording import catalog
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.storage import Store
from caesura.runtime.server import create_app
from caesura.runtime.server.app import ServerParts
from caesura.runtime.server.listen import listening
from caesura.scheduler.vllm.client.engine import VllmEngine
from caesura.tools import Registry
from caesura.tools.calculator.tool import calculator
from tests.kit.waiting import until

pytestmark = pytest.mark.engine

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ASKS: dict[str, Any] = {
    "model": "caesura-tiny",
    "tools": [WEATHER],
    "server_tools": ["calculator"],
    "temperature": 0,
    "max_tokens": 100,
}


class Server:
    """A served engine that is recorded, and a client of it."""

    def __init__(self, http: aiohttp.ClientSession, recorder: Recorder) -> None:
        self._http = http
        self._recorder = recorder

    async def chat(self, messages: list[Any], **fields: Any) -> dict[str, Any]:
        body = {**ASKS, "messages": messages, **fields}
        async with self._http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            if not fields.get("stream"):
                return dict(await answer.json())
            return _joined(await answer.text())

    async def blocks(self) -> dict[str, float]:
        """Return `caesura_kv_blocks` by owner."""
        async with self._http.get("/metrics") as answer:
            text = await answer.text()
        found = re.findall(r'^caesura_kv_blocks\{.*owner="(\w+)".*\} (\S+)$', text, re.MULTILINE)
        return {owner: float(count) for owner, count in found}

    def entries(self, *kinds: str) -> list[dict[str, Any]]:
        path, recording = self._recorder.store.path, self._recorder.recording
        return [] if recording is None else list(catalog.entries(path, recording, kinds))


def _joined(events: str) -> dict[str, Any]:
    """Return a stream's message, in the form of an answer that came whole."""
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    pieces = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    function = {
        "name": pieces[0]["function"]["name"],
        "arguments": "".join(piece["function"].get("arguments") or "" for piece in pieces),
    }
    calls = [{"id": pieces[0]["id"], "type": "function", "function": function}]
    return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]}


@pytest.fixture
async def server(
    engine: VllmEngine, settled: Callable[[], Any], tmp_path: Path
) -> AsyncIterator[Server]:
    with Recorder(Store(tmp_path / "traces.sqlite")) as recorder:
        stop = record(engine, recorder)
        app = create_app(engine, Registry([calculator]), parts=ServerParts(recorder=recorder))
        async with (
            listening(app, shutdown_timeout=1) as port,
            aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
        ):
            yield Server(http, recorder)
        stop()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_is_left_to_the_client_is_followed_up(
    server: Server, engine: VllmEngine, stream: bool
) -> None:
    """Its KV is kept, and the result comes back into the session that made the call."""
    place = "Oslo" if stream else "Bergen"
    question = {"role": "user", "content": f"What is the weather in {place}?"}
    first = await server.chat([question], stream=stream)
    message = first["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["function"]["name"] == "weather"
    # The request pauses in the engine, and its session is closed behind the answer.
    assert await until(lambda: _retained(engine))
    before = [pause["request"] for pause in server.entries("pause")]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain, 4 degrees"}
    second = await server.chat([question, message, result])
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= CPU_BLOCK_SIZE, "what the first request computed was given up"

    def followed() -> list[dict[str, Any]]:
        return [one for one in server.entries("pause") if one["tool"] == "weather"]

    (pause,) = await until(followed)
    assert pause["request"] not in before, "it was closed before anybody could come back"
    assert pause["outcome"] == "followed"
    ended = await until(lambda: server.entries("session"))
    assert [one["session"] for one in ended] == [pause["session"]]
    assert ended[0]["calls"] == 1


async def _retained(engine: VllmEngine) -> int:
    return int((await engine.state())["retained"])


async def test_no_blocks_are_shown_as_running_while_the_engine_rests(
    server: Server, engine: VllmEngine, settled: Callable[[], Any]
) -> None:
    await server.chat([{"role": "user", "content": "What is 48 * 17?"}])
    await settled()
    total = float((await engine.state())["blocks_total"])
    ran = await until(lambda: server.entries("steps"))
    assert max(max(one["running_blocks"]) for one in ran) > 0

    async def rests() -> bool:
        blocks = await server.blocks()
        return blocks.get("running") == 0 and sum(blocks.values()) == total

    assert await until(rests), await server.blocks()
