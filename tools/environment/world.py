"""One session's environment: its process and its current game.

The processes come from a bounded pool, of which some are started in advance.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from caesura.tools.environment.child import View, shown
from caesura.tools.errors import ToolError
from caesura.tools.worker import Worker, WorkerDied, WorkerFailed

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


RESETS = frozenset({"reset", "start", "restart"})


class World:
    """Plays games for one session in a process of its own, which the first call takes.

    next_game: returns the number of the next game. Concurrent calls take turns.
    """

    def __init__(self, pool: Prewarmed, next_game: Callable[[], int], max_steps: int) -> None:
        self._pool = pool
        self._next_game = next_game
        self._max_steps = max_steps
        self._turn = asyncio.Lock()
        self._worker: Worker | None = None
        self._view: View | None = None
        """The game's last view; None: no game is running."""
        self._steps = 0
        self._lost = False
        self._closed = False

    async def act(self, action: str) -> str:
        """Perform an action and return the observation; "reset" starts the next game.

        Raises ToolError, whose message is for the model, where the game has failed.
        """
        async with self._turn:
            if action.strip().lower() in RESETS:
                return shown(await self._reset())
            if self._lost:
                raise ToolError('the game was lost with its process: "reset" starts a new one')
            if self._view is None:
                view = await self._reset()
                return f"No game was under way: this one starts now.\n{shown(view)}"
            if self._view["outcome"] is not None:
                over = View(
                    text='This game is over: "reset" starts the next one.',
                    actions=[],
                    outcome=self._view["outcome"],
                )
                return shown(over)
            return shown(await self._step(action))

    async def aclose(self) -> None:
        """End the process, even during a call."""
        self._closed = True
        await self._drop()

    async def _reset(self) -> View:
        if self._worker is not None and not self._worker.is_alive:
            await self._drop()
        if self._worker is None:
            self._worker = await self._pool.take()
        if self._closed:
            await self._drop()
            raise ToolError("the session has ended")
        self._view, self._steps, self._lost = None, 0, False
        self._view = await self._call("reset", number=self._next_game())
        return self._view

    async def _step(self, action: str) -> View:
        view = await self._call("act", action=action)
        self._steps += 1
        if view["outcome"] is None and self._steps >= self._max_steps:
            text = f"{view['text']}\nAll {self._max_steps} steps are used up."
            view = View(text=text, actions=[], outcome="lost")
        self._view = view
        return view

    async def _call(self, function: str, **arguments: Any) -> View:
        """Call the process; if it fails or answers wrongly, end it together with the game."""
        worker = self._worker
        if worker is None:
            raise ToolError("the session has ended")
        try:
            view: View = await worker.call(function, **arguments)
        except BaseException as error:
            self._view, self._lost = None, True
            await asyncio.shield(self._drop())
            if isinstance(error, WorkerDied | WorkerFailed):
                reason = f'the game broke down ({error}): "reset" starts a new one'
                raise ToolError(reason) from error
            raise
        return view

    async def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            await self._pool.give_back(worker)
