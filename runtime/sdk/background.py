"""The event loop that lives as long as the process, in a thread of its own.

What all event loops and threads share runs there: engines that agents start by name, the sources
of tools, and the built-in tools.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from caesura.runtime.errors import UsageError
from caesura.tools.loops import on_loop

T = TypeVar("T")
STOP_SECONDS = 30.0
"""How long the process waits at its end for the functions of `at_exit`."""
CLEAR_UP_SECONDS = 5.0
"""How long the remaining tasks then have to end."""


class BackgroundLoop:
    """Runs coroutines of all threads on one loop.

    The loop starts at its first use. When the process exits, it runs the functions of `at_exit`,
    cancels what is left, and stops.
    """

    def __init__(self) -> None:
        self._ends: list[Callable[[], Awaitable[None]]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    def at_exit(self, end: Callable[[], Awaitable[None]]) -> None:
        """Run `end()` on the loop when the process exits."""
        self._ends.append(end)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run `make()` and return its result, for code without an event loop.

        An interrupt cancels it. Raises `UsageError` inside a running event loop, which the call
        would block. The message says what to write `instead`.
        """
        if _in_event_loop():
            raise UsageError(f"an event loop is running here: write `{instead}` instead")
        future = asyncio.run_coroutine_threadsafe(make(), self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def carry(self, make: Callable[[], Awaitable[T]]) -> T:
        """Run `make()` on the loop, for any other loop; see `on_loop`."""
        return await on_loop(self.loop, make)

    @property
    def is_running(self) -> bool:
        """Whether anything may live on the loop."""
        return self._loop is not None and self._process == os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which this starts if necessary."""
        with self._lock:
            # The loop's thread does not exist in a process that was forked.
            if self._loop is None or self._process != os.getpid():
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                running = threading.Event()
                self._loop.call_soon(running.set)
                # A daemon thread, since a hanging tool must not prevent the process from ending.
                name = "caesura-background-loop"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
                running.wait()
                atexit.register(self._stop, self._loop)
            return self._loop

    def end_first(self) -> None:
        """End the loop before all else that ends with the process so far.

        Python calls the newest hook first, and an engine's start registers one that kills it.
        """
        atexit.unregister(self._stop)
        atexit.register(self._stop, self.loop)

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        async def finish() -> None:
            loop.set_default_executor(_InPlace())
            try:
                for end in self._ends:
                    await end()
            finally:
                await _end_tasks()

        if self._process != os.getpid():
            return
        try:
            asyncio.run_coroutine_threadsafe(finish(), loop).result(STOP_SECONDS)
        finally:
            loop.call_soon_threadsafe(loop.stop)


class _InPlace(ThreadPoolExecutor):
    """An executor without threads, since thread pools accept no work while Python exits."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run the function now; return its result as a future."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


async def _end_tasks() -> None:
    """Cancel the remaining tasks, as `asyncio.run` does, so that they can clean up."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CLEAR_UP_SECONDS)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


BACKGROUND = BackgroundLoop()
"""The background loop of this process."""
