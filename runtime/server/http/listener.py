"""Listening sockets, open before there is an application, and uvicorn's server on them."""

import asyncio
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from caesura.runtime.errors import UsageError
from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.http.sockets import SocketLimits, notice_dead_peers, protocol_of

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
