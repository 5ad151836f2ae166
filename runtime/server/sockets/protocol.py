"""uvicorn's HTTP protocol with bounds on what a client may leave undone.

uvicorn bounds the time between requests only. A client that never ends its headers, or never reads
its answer, would keep its connection and its run for ever.
"""

import asyncio
from typing import Any, ClassVar

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from caesura.runtime.server.http.access import HEALTH
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.sockets.counts import ConnectionCounts, Place, client_of
from caesura.runtime.server.sockets.limits import SocketLimits, descriptors

MAX_HEADER_BYTES = 64 * 2**10
RETRY_SECONDS = 5
_LATE = b"408 Request Timeout"
_LARGE = b"431 Request Header Fields Too Large"


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `protocol_of` makes the class of a server, with its bounds."""

    limits: ClassVar[SocketLimits]
    counts: ClassVar[ConnectionCounts]

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._address = ""
        self._place = Place.NONE
        self._in_headers = True
        self._header_bytes = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._took_some = False

    # -- coming and going --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, and give it a time for its first headers."""
        super().connection_made(transport)
        self._address = client_of(self.client[0]) if self.client else ""
        self._place = self.counts.enter(self._address)
        if self._place is Place.NONE:
            transport.abort()
            return
        if self._place is Place.SPARE:
            self.app = _refusing(self.app)
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the connection's place back."""
        super().connection_lost(exc)
        self._cancel_timers()
        self.counts.leave(self._address, self._place)
        self._place = Place.NONE

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to the protocol of WebSockets, which has its own time-outs."""
        self._cancel_timers()
        transport = self.transport
        self.counts.lend(self._address, transport.is_closing)
        super().handle_websocket_upgrade()

    def _should_upgrade(self) -> bool:
        return self._place is Place.OPEN and super()._should_upgrade()

    def _cancel_timers(self) -> None:
        for timer in (self._header_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._header_timer = self._write_timer = None

    # -- headers -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read some bytes; headers that take too many end the connection."""
        if self._in_headers:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes:
            if self._header_timer is None:  # most requests come whole, and need no timer
                self._expect_headers()
            if self._header_bytes > MAX_HEADER_BYTES:
                self._refuse(_LARGE)

    def on_headers_complete(self) -> None:
        """Begin a request."""
        self._in_headers = False
        self._header_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
        super().on_headers_complete()
        if self._place is Place.SPARE and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """End a request: what comes next are headers."""
        self._in_headers = True
        self._header_bytes = 0
        super().on_message_complete()

    def _expect_headers(self) -> None:
        seconds = self.limits.header_seconds
        self._header_timer = self.loop.call_later(seconds, self._headers_are_late)

    def _headers_are_late(self) -> None:
        self._header_timer = None
        if self._is_answering:
            self._expect_headers()  # those of the next request, while this one is answered
        elif not self._header_bytes:
            self.transport.close()
        else:
            self._refuse(_LATE)

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, status: bytes) -> None:
        """Answer headers that cannot become a request, and close the connection."""
        if self.transport.is_closing():
            return
        if not self._is_answering:
            head = b"HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head % status)
        self.transport.close()

    # -- answers -----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Stop writing until the client has read some, which it must within a time."""
        super().pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self._took_some = True

    def on_response_complete(self) -> None:
        """End an answer, of which the client may still have to read the last part."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._watch_writes()

    def _watch_writes(self) -> None:
        if self._write_timer is None:
            self._unsent, self._took_some = self.transport.get_write_buffer_size(), False
            seconds = self.limits.write_seconds
            self._write_timer = self.loop.call_later(seconds, self._check_writes)

    def _check_writes(self) -> None:
        """Cut off a client that took no byte since the last check."""
        self._write_timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent >= self._unsent and not self._took_some:
            self.transport.abort()
        elif unsent:
            self._watch_writes()


def protocol_of(limits: SocketLimits) -> type[BoundedProtocol]:
    """Return the protocol of a server's connections, since uvicorn makes them from a class."""
    counts = ConnectionCounts(limits.most_connections(descriptors()), limits.max_per_address)
    return type("Bounded", (BoundedProtocol,), {"limits": limits, "counts": counts})


def _refusing(app: Any) -> ASGIApp:
    """Return an application that only tells whether the server is well."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH:
            await app(scope, receive, send)
            return
        refusal = ApiError(
            503,
            f"The server has as many connections as it takes: retry after {RETRY_SECONDS} s.",
            code="too_many_connections",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
        await refusal.response(scope["path"])(scope, receive, send)

    return answer
