"""Subscriptions to a live recording: bounded queues of batches for an event loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from caesura.runtime.recording.storage.reading import Page

MAX_WAITING = 5000
"""The most entries that wait in memory; a slower watcher reads them from the store instead."""
MAX_CHARACTERS = 8 * 2**20
"""The most characters of JSON that wait in memory."""


class Publisher(Protocol):
    """A source of written entries."""

    def subscribe(self, subscription: "Subscription") -> None:
        """Begin to send entries to the subscription."""
        ...

    def unsubscribe(self, subscription: "Subscription") -> None:
        """Stop sending entries to the subscription."""
        ...


class Subscription:
    """The batches that one watcher has not read; a context manager in the watcher's event loop.

    A watcher subscribes first and then reads the store, so that it misses no entry.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._batches: deque[Page] = deque()
        self._waiting = self._characters = 0
        self._behind = self._closed = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def offer(self, batch: Page) -> bool:
        """Add a batch, from any thread; return False if the event loop is closed."""
        return self._soon(lambda: self._take(batch))

    def finish(self) -> bool:
        """End the subscription, from any thread; return False if the event loop is closed."""
        return self._soon(self._finish)

    async def next(self) -> Page | None:
        """Wait for the next batch and return it.

        None means that batches were dropped or, if `is_closed`, that no batch follows.
        """
        while not (self._batches or self._behind or self._closed):
            self._changed.clear()
            await self._changed.wait()
        if self._behind or not self._batches:
            self._behind = False
            return None
        batch = self._batches.popleft()
        self._waiting -= len(batch)
        self._characters -= _characters(batch)
        return batch

    @property
    def is_closed(self) -> bool:
        """Whether the recording has ended."""
        return self._closed

    def __enter__(self) -> Self:
        """Subscribe."""
        self._publisher.subscribe(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unsubscribe."""
        self._publisher.unsubscribe(self)

    def _soon(self, work: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def _take(self, batch: Page) -> None:
        self._batches.append(batch)
        self._waiting += len(batch)
        self._characters += _characters(batch)
        if self._waiting > MAX_WAITING or self._characters > MAX_CHARACTERS:
            self._batches.clear()
            self._waiting = self._characters = 0
            self._behind = True
        self._changed.set()

    def _finish(self) -> None:
        self._closed = True
        self._changed.set()


def _characters(batch: Page) -> int:
    return sum(len(body) for _, body in batch)
