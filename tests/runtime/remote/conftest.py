"""Servers for remote engines: `caesura serve`, and one of another make, behind a bad line."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from caesura import RemoteEngine
from caesura.runtime.server import create_app
from caesura.runtime.server.listen import listening
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.registry import Registry
from tests.kit.server import MODEL, settings


class Line:
    """A line to a server, which a test can cut; one to another make of server knows only chat."""

    def __init__(self, url: str, kind: str) -> None:
        self._url = url
        self._kind = kind
        self._http = aiohttp.ClientSession()
        self.seen: list[str] = []
        """The requests that came, such as `POST /v1/responses`."""
        self.refusals: list[tuple[int, dict[str, str]]] = []
        """Statuses and headers that the next requests get instead of an answer."""
        self.cuts: list[int] = []
        """After so many events each of the next streams breaks."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on."""
        self.seen.append(f"{request.method} {request.path}")
        if request.path == "/v1/models" and self._kind == "another":
            return web.json_response({"object": "list", "data": [{"id": MODEL}]})
        if request.path != "/v1/chat/completions" and self._kind == "another":
            return web.json_response({"detail": "Not Found"}, status=404)
        if not request.path.startswith("/v1/models") and self.refusals:
            status, headers = self.refusals.pop(0)
            return web.json_response({"error": {"message": "busy"}}, status=status, headers=headers)
        sent = self._http.request(
            request.method,
            f"{self._url}{request.path_qs}",
            data=await request.read(),
            headers={
                name: value for name, value in request.headers.items() if name.lower() != "host"
            },
        )
        async with sent as got:
            if request.path == "/v1/models":  # in `caesura serve` the list is vLLM's
                return web.Response(body=(await got.read()).replace(b'"caesura"', b'"vllm"'))
            streams = got.content_type == "text/event-stream"
            cut = self.cuts.pop(0) if streams and self.cuts else None
            made = web.StreamResponse(status=got.status, headers={"Content-Type": got.content_type})
            await made.prepare(request)
            events = 0
            async for line in got.content:
                await made.write(line)
                events += line.startswith(b"data:")
                if events == cut and request.transport is not None:
                    request.transport.abort()
                    break
            return made

    async def close(self) -> None:
        await self._http.close()


@pytest.fixture(params=["ours", "another"])
def kind(request: pytest.FixtureRequest) -> str:
    """The make of the server."""
    return str(request.param)


@pytest.fixture
async def remote(kind: str) -> AsyncIterator[Callable[..., Any]]:
    """Serve a script; return a remote engine of it, the scripted engine, and the line."""
    async with AsyncExitStack() as stack:

        async def start(script: Any, **options: Any) -> tuple[RemoteEngine, ScriptedEngine, Line]:
            engine = ScriptedEngine(script, model=MODEL)
            app = create_app(engine, Registry(()), *settings(**options))
            port = await stack.enter_async_context(listening(app, shutdown_timeout=0.1))
            line = Line(f"http://127.0.0.1:{port}", kind)
            stack.push_async_callback(line.close)
            proxy = web.Application()
            proxy.router.add_route("*", "/{path:.*}", line.answer)
            runner = web.AppRunner(proxy, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            [address] = runner.addresses
            made = RemoteEngine(f"http://127.0.0.1:{address[1]}/v1", patience=30)
            await made.contact()
            assert made.is_caesura is (kind == "ours")
            return made, engine, line

        yield start
