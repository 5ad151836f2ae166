"""A real server on a free port of the loopback, over a scripted engine."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import fields
from typing import Any

import aiohttp
import openai
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from caesura.runtime.server import create_app
from caesura.runtime.server.app import Application, ServerParts
from caesura.runtime.server.listen import listening
from caesura.runtime.server.load.options import ServerOptions
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry
from caesura.tools.tool import tool

MODEL = "tiny/scripted"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "strict": True,
    },
}


_PARTS = {each.name for each in fields(ServerParts)}


def settings(**given: Any) -> tuple[ServerOptions, ServerParts]:
    """Return the last two parameters of `create_app` and of `serve`, told apart by their names."""
    parts = {name: given.pop(name) for name in _PARTS & given.keys()}
    return ServerOptions(**given), ServerParts(**parts)


class Served:
    """An application that is being served, and clients to it."""

    def __init__(self, engine: ScriptedEngine, app: Application, url: str) -> None:
        self.engine = engine
        self.app = app
        self.url = url
        self.http = aiohttp.ClientSession(base_url=url)
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)

    def body(self, **fields: Any) -> dict[str, Any]:
        """A valid request, with `fields` over it; a field that is ... is left out."""
        messages = [{"role": "user", "content": "Hello"}]
        body = {"model": MODEL, "messages": messages} | fields
        return {name: value for name, value in body.items() if value is not ...}

    async def chat(self, **fields: Any) -> tuple[int, dict[str, Any]]:
        """POST a request; the status and the parsed answer."""
        async with self.http.post("/v1/chat/completions", json=self.body(**fields)) as response:
            return response.status, await response.json()

    async def events(self, **fields: Any) -> list[Any]:
        """POST a streamed request; its events, parsed, comments as they are."""
        body = self.body(stream=True, **fields)
        async with self.http.post("/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            assert response.content_type == "text/event-stream"
            blocks = (await response.text()).removesuffix("\n\n").split("\n\n")
        return [_event(block) for block in blocks]

    async def metrics(self) -> str:
        async with self.http.get("/metrics") as response:
            assert response.status == 200
            return await response.text()

    async def aclose(self) -> None:
        await self.http.close()
        await self.openai.close()


def _event(block: str) -> Any:
    if block.startswith(":"):
        return block
    data = block.removeprefix("data: ")
    return data if data == "[DONE]" else json.loads(data)


@pytest.fixture
async def serve_script() -> AsyncIterator[Callable[..., Any]]:
    """Serve a script (or an engine) with some tools; everything is taken down after the test."""
    async with AsyncExitStack() as stack:

        async def start(script: Any, tools: Any = (), **options: Any) -> Served:
            engine = script
            if not isinstance(script, ScriptedEngine):
                engine = ScriptedEngine(script, model=MODEL)
            app = create_app(engine, Registry(tools), *settings(**options))
            port = await stack.enter_async_context(listening(app, shutdown_timeout=0.1))
            served = Served(engine, app, f"http://127.0.0.1:{port}")
            stack.push_async_callback(served.aclose)
            return served

        yield start


@pytest.fixture
def weather() -> dict[str, Any]:
    """A tool that the client runs."""
    return WEATHER


@pytest.fixture
def double() -> Any:
    """A tool that the server runs."""

    @tool
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    return double


class Hanging:
    """A tool that never returns, and what became of its call."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.released = asyncio.Event()

        @tool(name="hang")
        async def hang() -> str:
            """Wait until released."""
            self.started.set()
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "released"

        self.tool = hang


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


async def counted(served: Any) -> dict[tuple[str, str], float]:
    """Return the follow-ups so far, by outcome and reason."""
    pattern = r'caesura_followups_total\{field="\w*",outcome="(\w+)",why="(\w+)"\} (\S+)'
    found = re.findall(pattern, await served.metrics())
    return {(outcome, why): float(count) for outcome, why, count in found}


class Behind:
    """A stand-in for vLLM's application: tells what it was sent, or gives a certain answer."""

    def __init__(self, answer: Response | None = None) -> None:
        self.bodies: list[bytes] = []
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.bodies.append(await request.body())
        answer = self._answer or JSONResponse({"path": request.url.path, "answered": "behind"})
        await answer(scope, receive, send)
