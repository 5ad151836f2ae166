"""The engines of this process: one per model, started at the first use."""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed, UsageError
from caesura.runtime.launch import start_engine
from caesura.runtime.sdk.loop_thread import BackgroundLoop
from caesura.scheduler.errors import refuse_forked

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


ENGINES = SharedEngines(start_engine)
"""The engines of this process."""

BACKGROUND = BackgroundLoop(ENGINES.close_all)
"""The event loop behind `Agent.run_sync`."""
