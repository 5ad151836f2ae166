"""The engines of this process, one per model, for all its event loops and threads.

An engine starts at its first use.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.engine import Engine
from caesura.runtime.errors import EngineFailed
from caesura.runtime.sdk.across import EngineAcross, on_any_loop
from caesura.runtime.sdk.background import BACKGROUND, BackgroundLoop
from caesura.scheduler.errors import refuse_forked

Holder = Any
"""A user of an engine, compared by identity. A garbage-collected holder holds nothing."""
Launch = Callable[[str | None], Awaitable[Engine]]


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Engine]
    holders: weakref.WeakSet[Holder] = field(default_factory=weakref.WeakSet)


class SharedEngines:
    """One engine per model; the last holder to release it closes it.

    The engines run on the background loop, and so do the methods that change what is kept here.
    They are closed when the process exits.
    """

    def __init__(self, launch: Launch, background: BackgroundLoop) -> None:
        self._launch = launch
        self._background = background
        self._entries: dict[str | None, _Entry] = {}
        self._process = os.getpid()
        self._lent: Engine | None = None
        background.at_exit(self._close_all)

    @asynccontextmanager
    async def lent(self, engine: Engine) -> AsyncIterator[None]:
        """Let agents that name no model use this engine, which the caller closes."""
        before, self._lent = self._lent, engine
        try:
            yield
        finally:
            self._lent = before

    async def hold(self, model: str | None, holder: Holder) -> Engine:
        """Return the model's engine, and start it if necessary. Holding it twice counts once.

        Any event loop may use it. Raises `UsageError` if this process was forked from one with an
        engine. Raises `EngineFailed`.
        """
        if model is None and self._lent is not None:
            return on_any_loop(self._lent)
        if self._entries:
            refuse_forked(self._process)
        self._process = os.getpid()
        return await self._background.carry(lambda: self._hold(model, holder))

    async def release(self, model: str | None, holder: Holder) -> None:
        """Release the engine; do nothing if the holder does not hold it, or in a forked process."""
        if self._process == os.getpid() and self._entries:
            await self._background.carry(lambda: self._release(model, holder))

    async def close_all(self) -> None:
        """Close every engine."""
        await self._background.carry(self._close_all)

    # -- on the background loop --------------------------------------------------------------------

    async def _hold(self, model: str | None, holder: Holder) -> Engine:
        entry = self._entries.get(model)
        if entry is None or _is_dead(entry):
            # A second lookup could see another entry: nothing is awaited before this one is kept.
            entry = _Entry(asyncio.get_running_loop().create_task(self._start(model, entry)))
            self._entries[model] = entry
        entry.holders.add(holder)
        try:
            # Other holders may wait for the same start, which a cancelled holder must not cancel.
            return await asyncio.shield(entry.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if entry.task.cancelled() and not (task and task.cancelling()):
                raise EngineFailed("the engine was closed while it started") from None
            raise

    async def _release(self, model: str | None, holder: Holder) -> None:
        entry = self._entries.get(model)
        if entry is None or holder not in entry.holders:
            return
        entry.holders.discard(holder)
        if len(entry.holders) == 0:
            del self._entries[model]
            await _close(entry)

    async def _close_all(self) -> None:
        entries = list(self._entries.values())
        self._entries.clear()
        for entry in entries:
            await _close(entry)

    async def _start(self, model: str | None, dead: _Entry | None) -> Engine:
        if dead is not None:
            with suppress(Exception):  # a dead engine must not keep the memory
                await _close(dead)
        try:
            engine = await self._launch(model)
        finally:
            self._background.end_first()
        return EngineAcross(engine, asyncio.get_running_loop())


def _is_dead(entry: _Entry) -> bool:
    """Return whether an engine failed to start."""
    return entry.task.done() and not _is_up(entry)


def _is_up(entry: _Entry) -> bool:
    task = entry.task
    return task.done() and not task.cancelled() and task.exception() is None


async def _close(entry: _Entry) -> None:
    if not entry.task.done():
        entry.task.cancel()
        await asyncio.wait([entry.task])
    if _is_up(entry):
        await entry.task.result().close()


async def _started(model: str | None) -> Engine:
    from caesura.runtime.launch import start_engine  # not before an engine is needed

    return await start_engine(model)


ENGINES = SharedEngines(_started, BACKGROUND)
"""The engines of this process."""
