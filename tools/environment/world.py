"""One session's environment: its process and its current game."""

import asyncio
from collections.abc import Callable
from typing import Any

from caesura.tools.environment.prewarmed import Prewarmed
from caesura.tools.environment.view import View, shown
from caesura.tools.errors import ToolError
from caesura.tools.worker import Worker, WorkerDied, WorkerFailed

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
