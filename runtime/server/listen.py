"""Serving an application on a port until a signal stops it."""

import asyncio
import errno
import gc
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypedDict, Unpack

from aiohttp import web

from caesura.runtime.engine import Engine
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.run.limits import Limits
from caesura.runtime.server.access import needs_mention
from caesura.runtime.server.app import UNDER_WAY, create_app
from caesura.runtime.server.state import STATE
from caesura.tools.artifacts import ArtifactStore
from caesura.tools.people import People
from caesura.tools.registry import Registry

if TYPE_CHECKING:
    from caesura.runtime.tracing.setup import Given

SHUTDOWN_SECONDS = 30.0
SWITCH_SECONDS = 0.0005
"""How long a thread that runs Python code may hold the GIL while the event loop waits."""


class AppOptions(TypedDict, total=False):
    """The settings of `create_app`."""

    api_key: str | None
    allowed_hosts: Collection[str]
    artifacts: ArtifactStore | None
    limits: Limits | None
    people: People | None
    max_concurrent: int
    client_max_size: int
    keep_alive_seconds: float
    tracing: "Given"
    recorder: Recorder | None


def _print(url: str) -> None:
    print(url, flush=True)  # a parent process may wait for this line in a pipe


def let_the_loop_in() -> None:
    """Lower the GIL's switch interval, so that CPU-bound tool threads do not stall the loop."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))


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
    let_the_loop_in()
    # `_shut` enforces the timeout; aiohttp applies its own one twice.
    runner = web.AppRunner(
        app, handler_cancellation=True, shutdown_timeout=shutdown_timeout + 5, access_log=None
    )
    await runner.setup()
    stop, hurry = asyncio.Event(), asyncio.Event()
    with _on_signals(lambda: hurry.set() if stop.is_set() else stop.set()), frozen_heap():
        try:
            announce(f"http://{_authority(host, await _listen(runner, host, port))}/v1")
            await stop.wait()
            if under_way := len(app[STATE].gate):
                print(
                    f"waiting for {under_way} requests under way, {shutdown_timeout:g} s at most; "
                    "a second signal cancels them",
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            await _shut(runner, app, hurry, shutdown_timeout)


async def _listen(runner: web.AppRunner, host: str, port: int) -> int:
    """Open the port; return its number."""
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} of {host} is in use: choose another port") from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return site.port


async def _shut(
    runner: web.AppRunner, app: web.Application, hurry: asyncio.Event, seconds: float
) -> None:
    """Close the port; cancel the requests that are still under way after `seconds`."""
    cleanup = asyncio.ensure_future(runner.cleanup())
    impatience = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait(
            {cleanup, impatience}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        impatience.cancel()
        for task in app[UNDER_WAY]:  # includes downloads and streams, which the gate does not count
            task.cancel()
        await cleanup


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
