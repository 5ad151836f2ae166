"""Connections of clients: how many there may be, and how long each may keep the server waiting.

Sockets listen before there is an application. The protocol is uvicorn's, with bounds on what a
client may leave undone. uvicorn bounds the time between requests only. A client that never ends its
headers, or never reads its answer, would keep its connection and its run for ever.
"""

import asyncio
import errno
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.http.exchange import HEALTH

DESCRIPTORS_KEPT = 128
"""File descriptors that connections leave to the engine, the tools and the files."""
_PROBES = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Seconds of silence before the kernel probes a peer, between probes, and lost probes."""
_UNACKNOWLEDGED_MS = 120_000


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """The bounds on clients' connections, which keep no request waiting for another client.

    A body may take `body_seconds`, and one second more for every `body_rate` bytes that have
    come. A client that takes no byte of its answer for `write_seconds` is cut off, and its run
    ends. Raises `UsageError` for a bound that is not positive.
    """

    header_seconds: float = 10.0
    """From a connection, or a request's first byte, to the end of its headers."""
    body_seconds: float = 10.0
    body_rate: int = 16 * 2**10
    """Bytes per second."""
    idle_seconds: int = 75
    """How long a connection stays open between requests. Clients then open a new one."""
    write_seconds: float = 60.0
    max_connections: int = 4096
    max_connections_per_address: int = 2048
    """The most connections of one IPv4 address, or of one IPv6 network of 64 bits."""
    max_body_bytes_read: int = 512 * 2**20
    """The most bytes of all bodies that are being read."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise UsageError(f"{each.name} must be positive, got {value!r}")

    def most_connections(self, descriptors: int | None) -> int:
        """Return how many connections fit into a process that may open so many files."""
        if descriptors is None:
            return self.max_connections
        return min(self.max_connections, max(descriptors // 2, descriptors - DESCRIPTORS_KEPT))


def descriptors() -> int | None:
    """Return how many files this process may open, or None where that is not limited."""
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def notice_dead_peers(listener: socket.socket) -> None:
    """Let the kernel end accepted connections whose other end is gone without a word.

    Linux hands these options on from the listening socket.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**_PROBES, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MS}.items():
        option = getattr(socket, name, None)  # not on every system
        if option is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)


SPARE = 32
"""Connections beyond the bounds, which are answered only where that takes no work."""
_NETWORK_BITS = 64
"""A provider gives a customer a network of this size, so one client has all of its addresses."""


class Place(Enum):
    """What a new connection may do."""

    OPEN = "open"
    SPARE = "spare"
    """It is beyond a bound: a request for health is answered, and any other one is refused."""
    NONE = "none"
    """It is closed at once."""


class ConnectionCounts:
    """Counts the open connections of one server."""

    def __init__(self, most: int, most_per_address: int, spare: int = SPARE) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._spare = spare
        self._addresses: Counter[str] = Counter()
        self._spares = 0
        self._lent: list[tuple[Callable[[], bool], str]] = []

    def __len__(self) -> int:
        """Return the number of connections with a place of their own."""
        return self._addresses.total()

    def enter(self, address: str) -> Place:
        """Return the place of a new connection; `leave` gives it back."""
        if self._is_full(address):
            self._end_lent()
        if not self._is_full(address):
            self._addresses[address] += 1
            return Place.OPEN
        if self._spares < self._spare:
            self._spares += 1
            return Place.SPARE
        return Place.NONE

    def leave(self, address: str, place: Place) -> None:
        """Give back the place of a connection that has ended."""
        if place is Place.SPARE:
            self._spares -= 1
        elif place is Place.OPEN:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    def lend(self, address: str, has_ended: Callable[[], bool]) -> None:
        """Keep an open place for a connection whose end is known only by asking."""
        self._lent.append((has_ended, address))

    def _is_full(self, address: str) -> bool:
        return len(self) >= self._most or self._addresses[address] >= self._most_per_address

    def _end_lent(self) -> None:
        lent, self._lent = self._lent, []
        for has_ended, address in lent:
            if has_ended():
                self.leave(address, Place.OPEN)
            else:
                self._lent.append((has_ended, address))


def client_of(host: str) -> str:
    """Return the address by which a client is counted: its IPv4 address, or its IPv6 network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False).network_address)


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
    counts = ConnectionCounts(
        limits.most_connections(descriptors()), limits.max_connections_per_address
    )
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


BACKLOG = 2048
"""The most connections that the kernel accepts before the server does."""
CANCEL_SECONDS = 15.0
"""How long requests may take to end once they were cancelled: a tool has 5 s to clean up."""


class Listener:
    """Listening sockets, and the application behind them, which another one may replace.

    A server listens before its engine has loaded: so a taken port is found at once, and probes are
    answered.
    """

    def __init__(self, sockets: list[socket.socket], app: ASGIApp, limits: SocketLimits) -> None:
        """Create it with the application that answers first; needs a running event loop."""
        self.app = app
        self.port: int = sockets[0].getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                self,
                lifespan="off",  # `start` and `leave` are called here, in the right order
                log_config=None,
                log_level=logging.CRITICAL,
                access_log=False,
                server_header=False,
                http=protocol_of(limits),
                timeout_keep_alive=limits.idle_seconds,
            )
        )
        self.serving = asyncio.ensure_future(self._server.serve(sockets))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request by the application of this moment."""
        await self.app(scope, receive, send)

    async def opened(self) -> None:
        """Return once requests are taken."""
        await self._server.ready.wait()

    def close(self, *, hurry: bool = False) -> None:
        """Take no more connections; `serving` ends with those that there are, or at once."""
        self._server.should_exit = True
        self._server.force_exit = self._server.force_exit or hurry


@asynccontextmanager
async def open_listener(
    host: str, port: int, limits: SocketLimits, first: ASGIApp | None = None
) -> AsyncIterator[Listener]:
    """Listen while the context lasts; `first` answers until another application does.

    Raises `UsageError` if the port can't be opened.
    """
    listener = Listener(await _open(host, port), first or _nothing, limits)
    try:
        await listener.opened()
        yield listener
    finally:
        listener.close()
        await asyncio.wait({listener.serving}, timeout=CANCEL_SECONDS)
        listener.close(hurry=True)
        await listener.serving


async def _nothing(scope: Scope, receive: Receive, send: Send) -> None:
    raise ApiError(503, "This server is just starting.", code="engine_loading")


class _Server(uvicorn.Server):
    """A server that leaves signals to `serve`, and says when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _open(host: str, port: int) -> list[socket.socket]:
    """Return a listening socket for every address of the host, all with the same port."""
    opened: list[socket.socket] = []
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, *_, address in dict.fromkeys(addresses):
            number = opened[0].getsockname()[1] if opened else port
            place = (address[0], number, *address[2:])
            opened.append(socket.create_server(place, family=family, backlog=BACKLOG))
            notice_dead_peers(opened[-1])
    except OSError as error:
        for each in opened:
            each.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is in use: choose another port") from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return opened
