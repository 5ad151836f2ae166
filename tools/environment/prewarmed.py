"""A bounded pool of game processes, of which some are started in advance."""

import asyncio
from collections.abc import Mapping
from typing import Any

from caesura.tools.worker import Worker

MODULE = "caesura.tools.environment.child"


class Prewarmed:
    """Hands out prepared workers, up to `most` at a time, and keeps `spares` ready after the first.

    options: for the child's `prepare`. environment: variables of the processes. The pool belongs
    to the event loop that first uses it, until that loop is closed.
    """

    def __init__(
        self, options: Mapping[str, Any], environment: Mapping[str, str], *, most: int, spares: int
    ) -> None:
        self._options = dict(options)
        self._environment = environment
        self._most = most
        self._spares = spares
        self._ready: list[asyncio.Task[Worker]] = []
        self._workers: set[Worker] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.taken = 0
        """How many workers are handed out, or about to be."""

    async def take(self) -> Worker:
        """Return a worker for the caller alone, until it is given back.

        Raises RuntimeError when all are taken or the pool is closed, and what `prepare` raises.
        """
        self._enter()
        if self.taken >= self._most:
            raise RuntimeError(
                f"all {self._most} environments are in use by other sessions: "
                "try again later, or continue without one"
            )
        self.taken += 1
        try:
            while True:
                worker = await self._next()
                if worker.is_alive:
                    return worker
                self._workers.discard(worker)
        except BaseException:
            self.taken -= 1
            raise

    async def give_back(self, worker: Worker) -> None:
        """End a worker that was taken."""
        self.taken -= worker in self._workers
        await self._end(worker)

    async def aclose(self) -> None:
        """End all processes, including those that are taken."""
        self._closed = True
        starting, self._ready = self._ready, []
        for task in starting:
            task.cancel()
        await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(self._end(worker) for worker in list(self._workers)))

    def _enter(self) -> None:
        if self._closed:
            raise RuntimeError("the environments are closed")
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            # The workers of a closed loop have ended with it.
            self._ready, self._workers, self.taken, self._loop = [], set(), 0, loop
        elif self._loop is not loop:
            raise RuntimeError("the environments belong to another event loop")

    async def _next(self) -> Worker:
        """Return the worker whose start began first, and start others to follow it."""
        self._ready = [task for task in self._ready if not _failed(task)]
        while len(self._ready) < 1 + self._spares:
            self._ready.append(asyncio.ensure_future(self._start()))
        task = self._ready.pop(0)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._ready.insert(0, task)  # for the next caller
            raise

    async def _start(self) -> Worker:
        worker = await Worker.spawn(MODULE, environment=self._environment)
        self._workers.add(worker)
        try:
            await worker.call("prepare", options=self._options)
        except BaseException:
            await self._end(worker)
            raise
        return worker

    async def _end(self, worker: Worker) -> None:
        self._workers.discard(worker)
        await worker.kill()


def _failed(task: asyncio.Task[Worker]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
