"""One server: a replica that runs the whole ASGI application, with its engine and its tools."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any

from ray import serve
from starlette.types import ASGIApp, Message, Scope

from caesura.runtime.front.forwarded import Forwarded
from caesura.runtime.front.router import server_name

OpenApp = Callable[[str], AbstractAsyncContextManager[ASGIApp]]
"""Opens a server's application; it is given the name of the server for `Caesura-Server`."""
HEALTH = "/health"
OK = 200


class Server:
    """A deployment whose replicas answer forwarded requests."""

    def __init__(self, open_app: OpenApp) -> None:
        self._open_app = open_app
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()
        self._app: ASGIApp | None = None

    async def answer(self, request: Forwarded) -> AsyncIterator[list[Message]]:
        """Answer a request with the messages of its answer, as many at once as there are.

        The request is cancelled in the application when the caller goes.
        """
        app = await self._opened()
        sent: asyncio.Queue[Message] = asyncio.Queue()
        running = asyncio.create_task(_run(app, request, sent))
        running.add_done_callback(lambda _: sent.put_nowait(_END))
        try:
            while True:
                messages = [await sent.get()]
                while not sent.empty():
                    messages.append(sent.get_nowait())
                told = [message for message in messages if message is not _END]
                if told:
                    yield told
                if len(told) < len(messages):
                    break
            await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(running, return_exceptions=True)

    async def check_health(self) -> None:
        """Raise `RuntimeError` if the application is not healthy; Ray Serve then replaces it."""
        app = await self._opened()
        statuses: list[int] = []

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": HEALTH,
            "raw_path": HEALTH.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": None,
            "server": None,
        }
        await app(scope, _receiver(b""), send)
        if statuses != [OK]:
            raise RuntimeError(f"{HEALTH} answered {statuses}, not {OK}")

    async def close(self) -> None:
        """Close the application."""
        await self._stack.aclose()

    async def _opened(self) -> ASGIApp:
        """Return the application, which is opened on the loop of the requests."""
        async with self._opening:
            if self._app is None:
                name = server_name(serve.get_replica_context().replica_id)
                self._app = await self._stack.enter_async_context(self._open_app(name))
            return self._app

    async def __del__(self) -> None:
        await self.close()


_END: Message = {"type": "end"}


async def _run(app: ASGIApp, request: Forwarded, sent: asyncio.Queue[Message]) -> None:
    await app(dict(request.scope), _receiver(request.body), sent.put)


def _receiver(body: bytes) -> Callable[[], Any]:
    """Return the `receive` of a request whose body is there; its client leaves by cancelling."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("an event that nobody sets was set")

    return receive
