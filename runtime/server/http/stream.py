"""Answers that are written piece by piece, and server-sent events with keep-alive comments.

An error after a stream has begun becomes an event, since its status was sent.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from caesura.runtime.server.http.errors import from_exception
from caesura.runtime.server.http.exchange import count_as
from caesura.runtime.server.http.packing import PACKED, VARY, Packer

_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy must not buffer the stream
}


class Pieces:
    """An answer with status 200 that is written piece by piece. The headers go with the first."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], packer: Packer | None = None
    ) -> None:
        """Create an answer; with a `packer`, the client takes gzip."""
        self._send = send
        self._packer = packer
        self._head = Response(headers={**headers, **(PACKED | VARY if packer else {})})
        del self._head.headers["content-length"]
        self.begun = False
        """Whether the headers were sent."""

    async def write(self, data: bytes) -> None:
        """Send some bytes."""
        if not self.begun:
            self.begun = True
            headers = self._head.raw_headers
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._body(data, more=True)

    async def end(self) -> None:
        """Mark the answer as complete."""
        await self._body(b"", more=False)

    async def _body(self, data: bytes, more: bool) -> None:
        if self._packer is not None:
            data = await self._packer.packed(data, last=not more)
        body: Message = {"type": "http.response.body", "body": data, "more_body": more}
        await self._send(body)


class Streamed:
    """An endpoint whose handler writes its answer piece by piece."""

    def __init__(self, handler: Callable[[Request, Send], Awaitable[None]]) -> None:
        self.handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self.handler(Request(scope, receive), send)


def typed_event(event: Mapping[str, Any]) -> bytes:
    """Return a server-sent event that is named by its field `type`, for one write."""
    data = json.dumps(event, separators=(",", ":"))
    return f"event: {event['type']}\ndata: {data}\n\n".encode()


class EventStream:
    """A stream of events. As a context manager it breaks each long silence, with a comment.

    The stream sends its headers with the first event or comment. An earlier error can therefore
    still be answered with a status of its own.
    """

    def __init__(
        self,
        send: Send,
        keep_alive_seconds: float,
        headers: Mapping[str, str] | None = None,
        keep_alive: bytes = b": keep-alive\n\n",
        packer: Packer | None = None,
    ) -> None:
        """Create a stream that sends `keep_alive`, a comment or an event, after each silence.

        With a `packer`, the client takes gzip.
        """
        self._keep_alive_text = keep_alive
        self._pieces = Pieces(send, {**_HEADERS, **(headers or {})}, packer)
        self._seconds = keep_alive_seconds
        self._lock = asyncio.Lock()
        self._last_write = asyncio.get_running_loop().time()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        """Whether the headers of a successful answer were sent."""
        return self._pieces.begun

    async def begin(self) -> None:
        """Send the headers now, for a stream whose first event may come late."""
        await self._write(b"")

    async def send(self, payload: Mapping[str, Any]) -> None:
        """Send one event."""
        await self._write(b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n")

    async def send_event(self, event: bytes) -> None:
        """Send the bytes of one event, which end with its empty line."""
        await self._write(event)

    async def send_typed(self, event: Mapping[str, Any]) -> None:
        """Send one event under the name in its field `type`."""
        await self._write(typed_event(event))

    async def send_done(self) -> None:
        """Send `[DONE]`, which marks the stream as complete."""
        await self._write(b"data: [DONE]\n\n")

    async def end(self) -> None:
        """Stop the comments, and mark the answer as complete."""
        await self.hush()
        await self._pieces.end()

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            await self._pieces.write(data)
            self._last_write = asyncio.get_running_loop().time()

    async def __aenter__(self) -> Self:
        self._keeper = asyncio.create_task(self._keep_alive())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.hush()

    async def hush(self) -> None:
        """Stop the comments. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None

    async def _keep_alive(self) -> None:
        """Send a comment after each silence: proxies and clients drop silent connections."""
        clock = asyncio.get_running_loop().time
        with suppress(ConnectionError):
            while True:
                left = self._last_write + self._seconds - clock()
                if left > 0:
                    await asyncio.sleep(left)
                else:
                    await self._write(self._keep_alive_text)


@asynccontextmanager
async def errors_sent(
    request: Request,
    stream: EventStream,
    send: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> AsyncGenerator[None]:
    """Send an error that ends the block as an event; raise it if the stream has not begun."""
    try:
        yield
    except Exception as error:
        await stream.hush()
        if not stream.begun:
            raise
        told = from_exception(error)
        count_as(request.scope, told.status, told.code)
        await send(told.body_on(request.url.path))
