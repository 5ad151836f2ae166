"""Serving an application on a port, until a signal says to stop."""

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
"""How long a thread that computes in Python keeps the event loop waiting, at each of its turns."""


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
    print(url, flush=True)  # whoever waits for the line may well read it from a pipe


def let_the_loop_in() -> None:
    """Have threads hand over Python's lock sooner than by default: tools may compute in some."""
    sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_SECONDS))


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Keep what has been made so far out of garbage collections, which stop all threads.

    With vLLM loaded a full one takes a few hundred ms. vLLM's own server does the same.
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
    """Serve until SIGINT, SIGTERM or cancellation; `announce` is given the base URL once ready.

    `options` are those of `create_app`, `port` 0 takes any free one. Requests may name the server
    as `host` does. On the first signal no more
    connections are taken and requests under way have `shutdown_timeout` seconds to finish; a
    second signal breaks them off at once. The engine stays its owner's to close.

    Raises `UsageError` if the address cannot be listened on.
    """
    if needs_mention(host):
        options["allowed_hosts"] = [*options.get("allowed_hosts", ()), host]
    app = create_app(engine, tools, **options)
    let_the_loop_in()
    # Ours is the timeout that counts; aiohttp's own would wait twice as long.
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
                    "a second signal breaks them off",
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
            raise UsageError(f"port {port} of {host} is taken: choose another port") from error
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror}") from error
    return site.port


async def _shut(
    runner: web.AppRunner, app: web.Application, hurry: asyncio.Event, seconds: float
) -> None:
    """Take no more requests; let the ones under way finish, but not for ever."""
    cleanup = asyncio.ensure_future(runner.cleanup())
    impatience = asyncio.ensure_future(hurry.wait())
    try:
        await asyncio.wait(
            {cleanup, impatience}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        impatience.cancel()
        for task in app[UNDER_WAY]:  # also downloads and streams, which hold no place at the gate
            task.cancel()
        await cleanup


@contextmanager
def _on_signals(handle: Callable[[], None]) -> Iterator[None]:
    """Call `handle` on SIGINT and SIGTERM, where the loop can: in the main thread, on Unix."""
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
