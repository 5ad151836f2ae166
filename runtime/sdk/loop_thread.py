"""An event loop in a thread of its own, for callers without one."""

import asyncio
import atexit
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from caesura.runtime.errors import UsageError

T = TypeVar("T")

STOP_SECONDS = 30.0
"""How long the process waits at its end for the `at_exit` function."""
CLEAR_UP_SECONDS = 5.0
"""How long the remaining tasks then have to end."""


class BackgroundLoop:
    """Runs coroutines for synchronous code, all on one loop, so that engines outlive a call.

    The loop starts with the first `run`, and stops after `at_exit` when the process exits.
    """

    def __init__(self, at_exit: Callable[[], Awaitable[None]]) -> None:
        self._at_exit = at_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run `make()` and return its result; an interrupt cancels it.

        Raises `UsageError` inside a running event loop, which the call would block. The message
        says what to write `instead`.
        """
        if _in_event_loop():
            raise UsageError(f"an event loop is running here: write `{instead}` instead")
        loop = self._started()
        future = asyncio.run_coroutine_threadsafe(make(), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            # Python calls the newest hook first, and an engine's start registers one that kills it.
            atexit.unregister(self._stop)
            atexit.register(self._stop, loop)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # The loop's thread does not exist in a process that was forked.
            if self._loop is None or self._process != os.getpid():
                self._loop, self._process = asyncio.new_event_loop(), os.getpid()
                # A daemon thread, since a hanging tool must not prevent the process from ending.
                name = "caesura-background-loop"
                threading.Thread(target=self._loop.run_forever, name=name, daemon=True).start()
            return self._loop

    def _stop(self, loop: asyncio.AbstractEventLoop) -> None:
        async def finish() -> None:
            loop.set_default_executor(_InPlace())
            try:
                await self._at_exit()
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
