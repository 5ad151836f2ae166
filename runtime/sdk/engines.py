"""The engines of this process, one per model, and the event loop of callers without one.

An engine starts at its first use.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.launch import start_engine
from caesura.scheduler.errors import refuse_forked

T = TypeVar("T")
STOP_SECONDS = 30.0
"""How long the process waits at its end for the `at_exit` function."""
CLEAR_UP_SECONDS = 5.0
"""How long the remaining tasks then have to end."""
Holder = Any
"""A user of an engine, compared by identity. A garbage-collected holder holds nothing."""
Launch = Callable[[str | None], Awaitable[Engine]]


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Engine]
    loop: asyncio.AbstractEventLoop
    holders: weakref.WeakSet[Holder] = field(default_factory=weakref.WeakSet)


class SharedEngines:
    """One engine per model; the last holder to release it closes it.

    An engine belongs to the event loop that started it.
    """

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._entries: dict[str | None, _Entry] = {}
        self._process = os.getpid()
        self._lock = threading.Lock()

    async def hold(self, model: str | None, holder: Holder) -> Engine:
        """Return the model's engine, and start it if necessary. Holding it twice counts once.

        Raises `UsageError` if the engine runs on another event loop, or if this process was forked
        from one with an engine. Raises `EngineFailed`.
        """
        if self._entries:
            refuse_forked(self._process)
        self._process = os.getpid()
        entry = self._entry(model)
        entry.holders.add(holder)
        try:
            # Other holders may wait for the same start, which a cancelled holder must not cancel.
            return await asyncio.shield(entry.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if entry.task.cancelled() and not (task and task.cancelling()):
                raise EngineFailed("the engine was closed while it started") from None
            raise

    async def release(self, model: str | None, holder: Holder) -> None:
        """Release the engine; do nothing if the holder does not hold it, or in a forked process."""
        if self._process != os.getpid():
            return
        with self._lock:
            entry = self._entries.get(model)
            if entry is None or holder not in entry.holders:
                return
            entry.holders.discard(holder)
            if len(entry.holders) > 0:
                return
            del self._entries[model]
        await _close(entry)

    async def close_all(self) -> None:
        """Close every engine that runs on this event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            ours = {model: entry for model, entry in self._entries.items() if entry.loop is loop}
            for model in ours:
                del self._entries[model]
        for entry in ours.values():
            await _close(entry)

    def _entry(self, model: str | None) -> _Entry:
        loop = asyncio.get_running_loop()
        with self._lock:
            entry = self._entries.get(model)
            if entry is None or _is_dead(entry):
                entry = _Entry(loop.create_task(self._start(model, entry)), loop)
                self._entries[model] = entry
            elif entry.loop is not loop:
                raise UsageError(
                    f"the engine of {model or 'the bundled model'} runs on another event loop "
                    "(`run_sync` has its own): use one of the two, or close it there first"
                )
            return entry

    async def _start(self, model: str | None, dead: _Entry | None) -> Engine:
        if dead is not None:
            with suppress(Exception):  # a dead engine must not keep the memory
                await _close_here(dead)
        return await self._launch(model)


def _is_dead(entry: _Entry) -> bool:
    """Return whether an engine failed to start, or its event loop ended without closing it."""
    return entry.loop.is_closed() or (entry.task.done() and not _is_up(entry))


def _is_up(entry: _Entry) -> bool:
    task = entry.task
    return task.done() and not task.cancelled() and task.exception() is None


async def _close(entry: _Entry) -> None:
    """Close an engine on its own event loop if that runs, else on this one."""
    if entry.loop is asyncio.get_running_loop() or not entry.loop.is_running():
        await _close_here(entry)
    else:
        future = asyncio.run_coroutine_threadsafe(_close_here(entry), entry.loop)
        await asyncio.wrap_future(future)


async def _close_here(entry: _Entry) -> None:
    if not entry.task.done():
        entry.task.cancel()
        await asyncio.wait([entry.task])
    if _is_up(entry):
        await entry.task.result().close()


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


ENGINES = SharedEngines(start_engine)
"""The engines of this process."""
BACKGROUND = BackgroundLoop(ENGINES.close_all)
"""The event loop behind `Agent.run_sync`."""
