"""Where the sessions of a dead engine wait until it lives again."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from caesura.scheduler.errors import EngineFailed


class Revival:
    """The waiting for one engine. All methods belong to the engine's event loop."""

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        """Create it; `is_alive` says whether the engine takes requests at this moment."""
        self._is_alive = is_alive
        self._supervisors = 0
        self._given_up: EngineFailed | None = None
        self._changed = asyncio.Event()

    @property
    def supervised(self) -> bool:
        """Whether a supervisor restarts the engine when it dies, and has not given up."""
        return self._supervisors > 0 and self._given_up is None

    @contextmanager
    def supervising(self) -> Iterator[None]:
        """Let sessions wait for a restart while the context lasts, instead of failing at once."""
        self._supervisors += 1
        try:
            yield
        finally:
            self._supervisors -= 1
            self._notify()

    def give_up(self, error: EngineFailed) -> None:
        """Raise `error` in all sessions that wait or will wait, until the engine lives again."""
        self._given_up = error
        self._notify()

    def revive(self) -> None:
        """Say that the engine lives again."""
        self._given_up = None
        self._notify()

    async def wait(self, error: EngineFailed) -> None:
        """Return once the engine lives; raise `error`, or the supervisor's, if it never will."""
        while not self._is_alive():
            if not self.supervised:
                raise self._given_up or error
            await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
