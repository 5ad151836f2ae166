"""A few workers for one module, shared by all sessions."""

import asyncio
from collections.abc import Mapping
from typing import Any

from caesura.tools.worker.process import Worker


class WorkerPool:
    """Up to `workers` processes for `module`, started when they are needed.

    A call takes a worker for itself. One that died, or was killed because its call was cancelled,
    is replaced at the next call. Belongs to the event loop that first uses it.
    """

    def __init__(
        self, module: str, workers: int = 1, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._module = module
        self._environment = environment
        self._free: asyncio.Queue[Worker | None] = asyncio.Queue()
        for _ in range(workers):
            self._free.put_nowait(None)
        self._alive: set[Worker] = set()
        self._closed = False

    async def call(self, function: str, /, **arguments: Any) -> Any:
        """Call a function of the module in a worker; see `Worker.call`.

        Raises what that raises, and RuntimeError after `aclose`.
        """
        worker = await self._free.get()
        try:
            if self._closed:
                raise RuntimeError("the workers are put away")
            if worker is None or not worker.is_alive:
                worker = await Worker.spawn(self._module, environment=self._environment)
                self._alive.add(worker)
            return await worker.call(function, **arguments)
        finally:
            if worker is not None and not worker.is_alive:
                self._alive.discard(worker)
                worker = None
            self._free.put_nowait(worker)

    async def aclose(self) -> None:
        """Kill the workers; calls under way fail. May be called twice."""
        self._closed = True
        await asyncio.gather(*(worker.kill() for worker in list(self._alive)))
        self._alive.clear()
