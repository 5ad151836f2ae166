"""Worker processes that can be killed, for work that may hang or crash: rendering, games.

A worker runs the functions of one module, called by name in JSON lines over pipes. It is killed,
with every process that it started, when a call is cancelled or times out. A `WorkerPool` holds the
workers of one module, shared by all sessions.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from caesura.processes.worker import Worker, WorkerDied, WorkerFailed

__all__ = ["Worker", "WorkerDied", "WorkerFailed", "WorkerPool"]

IDLE_SECONDS = 60.0
"""How long an idle worker is kept, unless the pool sets another time."""


class WorkerPool:
    """Up to `workers` processes for `module`, started on demand.

    A call has a worker for itself: the one that was used last, so that surplus workers become
    idle. An idle worker ends after `idle_seconds` (None: never). A worker is replaced on demand
    once it has died, was killed with its cancelled call, or has served `max_calls`.
    `environment` and `memory_bytes` are those of `Worker.spawn`. The pool belongs to the event
    loop that first uses it, until that loop is closed.
    """

    def __init__(
        self,
        module: str,
        workers: int = 1,
        *,
        environment: Mapping[str, str] | None = None,
        idle_seconds: float | None = IDLE_SECONDS,
        max_calls: int | None = None,
        memory_bytes: int | None = None,
    ) -> None:
        self._module = module
        self._workers = workers
        self._environment = environment
        self._idle_seconds = idle_seconds
        self._max_calls = max_calls
        self._memory_bytes = memory_bytes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._slots = asyncio.Semaphore(workers)
        self._idle: dict[Worker, asyncio.TimerHandle | None] = {}
        self._alive: set[Worker] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def alive(self) -> int:
        """The number of live processes."""
        return sum(worker.is_alive for worker in self._alive)

    async def start(self) -> None:
        """Start all workers now, so that the first calls need not wait. Raises WorkerDied."""
        self._enter()
        missing = self._workers - len(self._alive)
        await asyncio.gather(*(self._start_one() for _ in range(missing)))

    async def call(self, function: str, /, **arguments: Any) -> Any:
        """Call a function of the module in a worker; see `Worker.call`.

        Raises what that raises, and RuntimeError after `aclose` or in a second event loop.
        """
        self._enter()
        async with self._slots:
            worker = self._take() or await self._spawn()
            try:
                return await worker.call(function, **arguments)
            finally:
                self._put(worker)

    async def aclose(self) -> None:
        """Kill the workers; running calls fail. May be called twice."""
        self._closed = True
        for worker in list(self._alive):
            self._end(worker)
        if self._ending:
            await asyncio.wait(self._ending)

    def _enter(self) -> None:
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            # The workers of a closed loop have ended with it.
            self._slots = asyncio.Semaphore(self._workers)
            self._idle, self._alive, self._ending = {}, set(), set()
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "the worker pool belongs to another event loop; make one for each loop"
            )

    async def _start_one(self) -> None:
        async with self._slots:
            self._put(await self._spawn())

    async def _spawn(self) -> Worker:
        worker = await Worker.spawn(
            self._module, environment=self._environment, memory_bytes=self._memory_bytes
        )
        self._alive.add(worker)
        if self._closed:
            await worker.kill()
            raise RuntimeError("the worker pool is closed")
        return worker

    def _take(self) -> Worker | None:
        """Return an idle worker that is alive, or None. Raises RuntimeError once closed."""
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        while self._idle:
            worker, timer = self._idle.popitem()
            if timer is not None:
                timer.cancel()
            if worker.is_alive:
                return worker
            self._end(worker)
        return None

    def _put(self, worker: Worker) -> None:
        """Keep a worker for the next call, or end it."""
        used_up = self._max_calls is not None and worker.calls >= self._max_calls
        if self._closed or used_up or not worker.is_alive:
            self._end(worker)
            return
        timer = None
        if self._idle_seconds is not None and self._loop is not None:
            timer = self._loop.call_later(self._idle_seconds, self._end, worker)
        self._idle[worker] = timer

    def _end(self, worker: Worker) -> None:
        """Kill a worker, in a separate task."""
        timer = self._idle.pop(worker, None)
        if timer is not None:
            timer.cancel()
        task = asyncio.ensure_future(worker.kill())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        self._alive.discard(worker)
