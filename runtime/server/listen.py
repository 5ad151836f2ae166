"""Serving an application on a port, by uvicorn, until a signal stops it."""

import asyncio
import errno
import gc
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import uvicorn

from caesura.runtime.engine import Engine, VllmServer
from caesura.runtime.errors import UsageError
from caesura.runtime.journal.store import JournalStore
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.app import Application, create_app
from caesura.runtime.server.http.access import needs_mention
from caesura.runtime.server.responses.store import Store
from caesura.runtime.server.sockets.limits import SocketLimits, notice_dead_peers
from caesura.runtime.server.sockets.protocol import protocol_of
from caesura.runtime.whatif.replays import Replays
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.setup import Given

SHUTDOWN_SECONDS = 30.0
BACKLOG = 2048
"""The most connections that the kernel accepts before the server does."""
SWITCH_SECONDS = 0.0005
"""How long a thread that runs Python code may hold the GIL while the event loop waits."""


class DoorOptions(TypedDict, total=False):
    """The settings of `create_app` that say who may use the server, and how much of it."""

    api_key: str | Collection[str] | None
    allowed_hosts: Collection[str]
    allowed_origins: Collection[str]
    max_concurrent: int
    sockets: SocketLimits


class AppOptions(DoorOptions, total=False):
    """The settings of `create_app`."""

    artifacts: ArtifactStore | None
    limits: Limits | None
    people: People | None
    client_max_size: int
    keep_alive_seconds: float
    tracing: "Given"
    recorder: Recorder | None
    store: Store | None
    vllm: VllmServer | None
    allow_private: bool
    replays: Replays | None
    journal: JournalStore | None


def _print(url: str) -> None:
    print(url, flush=True)  # a parent process may wait for this line in a pipe


def allow_thread_switches() -> None:
    """Lower the GIL's switch interval, so that CPU-bound tool threads do not stall the loop."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes a server's loop: uvloop's if it is there, as in vLLM's own server."""
    return uvicorn.Config("", loop="auto").get_loop_factory()


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude all objects that exist now from garbage collection while the context lasts.

    A full collection stops all threads, with vLLM loaded for a few hundred ms. vLLM's own server
    freezes its heap too.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def serve(
    engine: Engine,
    tools: Registry,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    shutdown_timeout: float = SHUTDOWN_SECONDS,
    announce: Callable[[str], object] = _print,
    **options: Unpack[AppOptions],
) -> None:
    """Serve until SIGINT, SIGTERM or cancellation; call `announce` with the base URL once ready.

    `options` are those of `create_app`. `port` 0 picks a free port. Requests may address the
    server as `host`. After the first signal the server accepts no connections, and requests under
    way have `shutdown_timeout` seconds to finish. A second signal cancels them at once. The
    caller closes the engine.

    Raises `UsageError` if the server cannot listen on the address.
    """
    if needs_mention(host):
        options["allowed_hosts"] = [*options.get("allowed_hosts", ()), host]
    app = create_app(engine, tools, **options)
    allow_thread_switches()
    stop, hurry = asyncio.Event(), asyncio.Event()
    with _on_signals(lambda: hurry.set() if stop.is_set() else stop.set()), frozen_heap():
        async with listening(app, host, port, shutdown_timeout, hurry) as actual_port:
            announce(f"http://{_authority(host, actual_port)}/v1")
            await stop.wait()
            if under_way := app.completions:
                print(
                    f"waiting for {under_way} requests under way, {shutdown_timeout:g} s at most; "
                    "a second signal cancels them",
                    file=sys.stderr,
                    flush=True,
                )


@asynccontextmanager
async def listening(
    app: Application,
    host: str = "127.0.0.1",
    port: int = 0,
    shutdown_timeout: float = SHUTDOWN_SECONDS,
    hurry: asyncio.Event | None = None,
) -> AsyncIterator[int]:
    """Serve an application while the context lasts; yield the port, which `port` 0 picks.

    At the end of the context, requests under way have `shutdown_timeout` seconds to finish, or
    until `hurry` is set. The rest is cancelled. Raises `UsageError` if the port can't be opened.
    """
    sockets = await _open(host, port)
    await app.start()
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",  # `start` and `leave` are called here, in the right order
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            server_header=False,
            http=protocol_of(app.sockets),
            timeout_keep_alive=app.sockets.idle_seconds,
        )
    )
    serving = asyncio.ensure_future(server.serve(sockets))
    try:
        await server.ready.wait()
        yield sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.shield(_shut(serving, app, hurry or asyncio.Event(), shutdown_timeout))


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


async def _shut(
    serving: asyncio.Future[None], app: Application, hurry: asyncio.Event, seconds: float
) -> None:
    """Wait for the requests under way; cancel those that are left after `seconds`."""
    leaving = asyncio.ensure_future(app.leave())
    impatience = asyncio.ensure_future(hurry.wait())
    try:
        either: set[asyncio.Future[Any]] = {serving, impatience}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        impatience.cancel()
        app.cancel_all()
        await asyncio.gather(serving, leaving)
        await app.close()


@contextmanager
def _on_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM, if the loop supports it: in Unix's main thread."""
    loop = asyncio.get_running_loop()
    installed: list[signal.Signals] = []
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, handle)
            except (NotImplementedError, RuntimeError, ValueError):
                break
            installed.append(number)
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
