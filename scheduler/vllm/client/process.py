"""The engine's process, by vLLM's client of it, which a restart replaces, and how it ended."""

import asyncio
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from caesura.scheduler.errors import EngineFailed
from caesura.scheduler.revival import Revival

_END_SECONDS = 30.0
"""How long a process that was killed may take to end; its memory is large."""
logger = logging.getLogger(__name__)
Start = Callable[[], AsyncLLM]
"""Starts the process and returns its client; it blocks for seconds to minutes."""


class EngineProcess:
    """Owns vLLM's client. All methods belong to the event loop of the engine."""

    def __init__(self, llm: AsyncLLM, start: Start | None = None) -> None:
        """Create it around a running engine; `start` makes another one of the same configuration.

        Without `start`, another program has started the engine, and it cannot be restarted.
        """
        self._llm = llm
        self._start = start
        self._closed = False
        self._busy = asyncio.Lock()
        self._starting: asyncio.Future[AsyncLLM] | None = None
        self._before: set[BaseProcess] = set()
        self.revival = Revival(lambda: self.is_alive)

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's present client, which a restart replaces; raises `EngineFailed` once closed."""
        if self._closed:
            raise EngineFailed("the engine is closed; start another one")
        return self._llm

    @property
    def is_alive(self) -> bool:
        """Whether the process takes requests."""
        # A hung process that is being replaced has no error yet, and answers nothing any more.
        return not self._closed and not self._busy.locked() and not self._llm.errored

    async def restart(self) -> None:
        """End the process and start another one; see `caesura.runtime.engine.Engine.restart`."""
        if self._start is None:
            raise EngineFailed("another program has started this engine; restart that program")
        async with self._busy:
            old = self.llm
            # Not only a dead engine is replaced: requests of a hung one must not wait for ever.
            old.output_processor.propagate_error(EngineDeadError())
            await _shut_down(old)
            # Those that were on their way to it were not there when the error was told.
            old.output_processor.propagate_error(EngineDeadError())
            self._before = set(multiprocessing.active_children())
            self._starting = asyncio.ensure_future(asyncio.to_thread(self._start))
            try:
                new = await asyncio.shield(self._starting)
            except asyncio.CancelledError:
                await self._stop_starting()
                raise
            finally:
                self._starting = None
            if self._closed:
                await _shut_down(new)
                raise EngineFailed("the engine was closed while it started again")
            self._llm = new

    async def close(self) -> None:
        """End the process, also one that is starting. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.revival.give_up(EngineFailed("the engine is closed; start another one"))
        await self._stop_starting()
        await _shut_down(self._llm)

    async def _stop_starting(self) -> None:
        """End processes that start, which ignore Ctrl-C, and wait for their thread."""
        starting = self._starting
        while starting is not None and not starting.done():
            for child in set(multiprocessing.active_children()) - self._before:
                child.terminate()
            await asyncio.wait([starting], timeout=0.2)
        if starting is not None and not starting.cancelled() and starting.exception() is None:
            await _shut_down(starting.result())


async def _shut_down(llm: AsyncLLM) -> None:
    """End the process of a client; a client that is shut down already stays so."""
    if llm.output_handler is not None:
        # The handler would report the shutdown as a crash, with a long traceback.
        llm.output_handler.cancel()
    await asyncio.to_thread(_end_processes, llm)


def _end_processes(llm: AsyncLLM) -> None:
    """Shut down, and wait until the processes are gone, which hold memory up to then."""
    manager = getattr(getattr(llm.engine_core, "resources", None), "engine_manager", None)
    sentinels = {process.sentinel for process in getattr(manager, "processes", ())}
    llm.shutdown()
    ended = time.monotonic() + _END_SECONDS
    while sentinels and time.monotonic() < ended:
        sentinels.difference_update(connection.wait(sentinels, ended - time.monotonic()))
    if sentinels:
        logger.warning("a process of the engine did not end within %s s", _END_SECONDS)


def ends_of(llm: AsyncLLM) -> str:
    """Return how the ended processes of vLLM's client ended; empty if none is known to have."""
    resources = getattr(llm.engine_core, "resources", None)
    manager: Any = getattr(resources, "engine_manager", None)
    if not hasattr(manager, "finished_procs"):  # on Ray, actors have no exit codes
        return ""
    ended: dict[str, int] = manager.finished_procs()
    return "; ".join(f"the process {name} {_said(code)}" for name, code in ended.items())


def _said(code: int) -> str:
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
