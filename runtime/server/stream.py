"""Server-sent events: the bytes of one answer, with keep-alive comments during silence."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from aiohttp import web

_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # a proxy must not buffer the stream
}


class EventStream:
    """A stream of events. As a context manager it sends a comment after each long silence.

    The stream sends its headers with the first event or comment. An earlier error can therefore
    still be answered with a status of its own.
    """

    def __init__(self, request: web.Request, keep_alive_seconds: float) -> None:
        self._request = request
        self._seconds = keep_alive_seconds
        self._lock = asyncio.Lock()
        self._last_write = asyncio.get_running_loop().time()
        self._keeper: asyncio.Task[None] | None = None
        self.response = web.StreamResponse(headers=_HEADERS)

    @property
    def begun(self) -> bool:
        """Whether the headers of a successful answer were sent."""
        return self.response.prepared

    async def begin(self) -> None:
        """Send the headers now, for a stream whose first event may come late."""
        await self._write(b"")

    async def send(self, payload: Mapping[str, Any]) -> None:
        """Send one event."""
        await self._write(b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n")

    async def send_event(self, event: bytes) -> None:
        """Send the bytes of one event, which end with its empty line."""
        await self._write(event)

    async def send_done(self) -> None:
        """Send `[DONE]`, which marks the stream as complete."""
        await self._write(b"data: [DONE]\n\n")

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            if not self.begun:
                await self.response.prepare(self._request)
            await self.response.write(data)
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
                    await self._write(b": keep-alive\n\n")
