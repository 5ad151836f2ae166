"""Serving an application on a port, by uvicorn, until a signal stops it."""

import asyncio
import gc
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

import uvicorn

from caesura.runtime.engine import Engine
from caesura.runtime.server.app import Application, ServerParts, create_app
from caesura.runtime.server.http.sockets import CANCEL_SECONDS, Listener, open_listener
from caesura.runtime.server.keys.access import needs_mention
from caesura.runtime.server.load.options import SHUTDOWN_SECONDS, ServerOptions
from caesura.runtime.supervision import Supervisor
from caesura.tools.registry import Registry

SWITCH_SECONDS = 0.0005
"""How long a thread that runs Python code may hold the GIL while the event loop waits."""


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
    options: ServerOptions | None = None,
    parts: ServerParts | None = None,
    announce: Callable[[str], object] = _print,
    listener: Listener | None = None,
) -> None:
    """Serve until SIGINT, SIGTERM or cancellation; call `announce` with the base URL once ready.

    The parameters are those of `create_app`. `listener` listens on the address already. After the
    first signal the server takes no more work. Requests under way then have time to finish, except
    those that wait for people or for tools that need longer. A second signal cancels all at once. A
    `supervisor` among the parts runs meanwhile. The caller closes the engine.

    Raises `UsageError` if the server cannot listen on the address, and `EngineLost` once the
    supervisor gives the engine up.
    """
    options, parts = options or ServerOptions(), parts or ServerParts()
    if needs_mention(options.host):
        options = replace(options, allowed_hosts=[*options.allowed_hosts, options.host])
    app = create_app(engine, tools, options, parts)
    allow_thread_switches()
    signals = _Signals()
    async with AsyncExitStack() as stack:
        if listener is None:
            address = (options.host, options.port, options.sockets)
            listener = await stack.enter_async_context(open_listener(*address))
        stack.enter_context(_on_signals(signals.take))
        stack.enter_context(frozen_heap())
        if parts.supervisor is not None:
            parts.supervisor.before_giving_up = app.lose_engine
        # It ends last: an engine that dies while requests finish is still started again.
        supervising = stack.enter_context(_supervising(parts.supervisor))
        patience = options.shutdown_timeout
        await stack.enter_async_context(_behind(app, listener, patience, signals.hurry))
        announce(f"http://{_authority(options.host, listener.port)}/v1")
        await _until_stopped(supervising, signals.stop)
        app.drain()
        if under_way := app.completions:
            _say_waiting(under_way, patience)
        if signals.terminated:
            with suppress(TimeoutError):
                await asyncio.wait_for(signals.hurry.wait(), options.drain_delay)


@contextmanager
def _supervising(supervisor: Supervisor | None) -> Iterator[asyncio.Future[None]]:
    """Run a supervisor while the context lasts; yield its task, or one that never ends."""
    task = asyncio.ensure_future(_nobody() if supervisor is None else supervisor.run())
    # An engine that is lost while requests finish has told them so itself.
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        yield task
    finally:
        task.cancel()


async def _nobody() -> None:
    await asyncio.Event().wait()


async def _until_stopped(supervising: asyncio.Future[None], stop: asyncio.Event) -> None:
    """Return at a signal; raise `EngineLost` once the engine is given up."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        either: set[asyncio.Future[Any]] = {supervising, stopping}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if not stop.is_set():
        await supervising


def _say_waiting(under_way: int, seconds: float) -> None:
    print(
        f"waiting for {under_way} requests under way, {seconds:g} s at most; "
        "a second signal cancels them",
        file=sys.stderr,
        flush=True,
    )


class _Signals:
    """What the signals ask for."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        self.terminated = False
        """Whether the first signal came from a program rather than from a terminal."""

    def take(self, number: int) -> None:
        """Take a signal."""
        if self.stop.is_set():
            self.hurry.set()
        self.terminated = self.terminated or number == signal.SIGTERM
        self.stop.set()


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
    async with (
        open_listener(host, port, app.options.sockets) as listener,
        _behind(app, listener, shutdown_timeout, hurry or asyncio.Event()),
    ):
        yield listener.port


@asynccontextmanager
async def _behind(
    app: Application, listener: Listener, shutdown_timeout: float, hurry: asyncio.Event
) -> AsyncIterator[None]:
    """Put an application behind a listener; at the end, close that and finish the requests."""
    await app.start()
    listener.app = app
    try:
        yield
    finally:
        listener.close()
        await asyncio.shield(_shut(listener, app, hurry, shutdown_timeout))


async def _shut(listener: Listener, app: Application, hurry: asyncio.Event, seconds: float) -> None:
    """Wait for the requests under way; cancel those that are left after `seconds`."""
    leaving = asyncio.ensure_future(_leave(app, seconds))
    impatience = asyncio.ensure_future(hurry.wait())
    try:
        either: set[asyncio.Future[Any]] = {listener.serving, impatience}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        impatience.cancel()
        app.cancel_all()
        await asyncio.wait({listener.serving}, timeout=CANCEL_SECONDS)
        listener.close(hurry=True)  # whatever still hangs does not hold the end of the server
        await asyncio.gather(listener.serving, leaving)
        await app.close()


async def _leave(app: Application, seconds: float) -> None:
    """Keep the questions to people, and end the runs that would outlast the time to finish."""
    await app.leave()
    await app.break_off_long(seconds)


@contextmanager
def _on_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM, if the loop supports it: in Unix's main thread."""
    loop = asyncio.get_running_loop()
    installed: list[signal.Signals] = []
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, handle, number)
            except (NotImplementedError, RuntimeError, ValueError):
                break
            installed.append(number)
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
