"""A server on this machine that answers as a test tells it, and counts who came."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    def __init__(self, port: int) -> None:
        self.port = port
        self.seen: list[web.Request] = []
        self.answers: dict[str, Handler] = {}

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def says(self, path: str, body: bytes = b"", status: int = 200, **headers: str) -> str:
        """Have `path` answered so; underscores in the headers' names stand for dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, status=status, headers=sent)

        self.answers[path] = answer
        return self.url(path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        handler = self.answers.get(request.path)
        return await handler(request) if handler else web.Response(text="secret")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site(0)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", 0).start()
    site.port = runner.addresses[0][1]
    yield site
    await runner.cleanup()
