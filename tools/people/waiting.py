"""Runs that wait for an item, and listeners to changes of items."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from caesura.tools.people.pending import Pending

MAX_BEHIND = 1000
"""A listener is dropped once this many items wait for it."""


class Waiting:
    """An open item, and the runs of this process that wait for it."""

    def __init__(self, item: Pending, identity: str) -> None:
        self.item = item
        self.identity = identity
        self.runs = 0
        self.calling: asyncio.Task[None] | None = None
        """The task of a callback that is answering the item."""
        self._settled: asyncio.Future[Pending] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether the item is still open."""
        return not self._settled.done()

    @property
    def is_settled(self) -> bool:
        """Whether the item is settled and has not failed."""
        return self._settled.done() and self._settled.exception() is None

    async def result(self) -> Pending:
        """Return the settled item; raises the error given to `fail`."""
        # Shielded: one of several runs may be cancelled.
        return await asyncio.shield(self._settled)

    def settle(self, item: Pending) -> None:
        """Continue the waiting runs."""
        self.item = item
        if self.is_open:
            self._settled.set_result(item)

    def fail(self, error: Exception) -> None:
        """Fail the waiting runs."""
        if self.is_open:
            self._settled.set_exception(error)
            self._settled.exception()  # marks it as retrieved where no run waits any more


class Listeners:
    """Listeners to every change of an item."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Pending | None]] = set()

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[Pending | None]]:
        """Yield a queue of items; None marks its end."""
        queue: asyncio.Queue[Pending | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def tell(self, item: Pending) -> None:
        """Send the item to every listener."""
        for queue in list(self._queues):
            if queue.qsize() < MAX_BEHIND:
                queue.put_nowait(item)
            else:
                self._end(queue)

    def end(self) -> None:
        """End all listeners' queues."""
        for queue in list(self._queues):
            self._end(queue)

    @staticmethod
    def ids_in(queue: asyncio.Queue[Pending | None]) -> set[str]:
        """Return the ids of the items in the queue, without removing them."""
        waiting = [queue.get_nowait() for _ in range(queue.qsize())]
        for each in waiting:
            queue.put_nowait(each)
        return {each.id for each in waiting if each is not None}

    def _end(self, queue: asyncio.Queue[Pending | None]) -> None:
        self._queues.discard(queue)
        queue.put_nowait(None)

    @staticmethod
    async def read(
        queue: asyncio.Queue[Pending | None], first: Sequence[Pending]
    ) -> AsyncIterator[Pending]:
        """Yield these items, and then the queue's, until its end."""
        for known in first:
            yield known
        while (item := await queue.get()) is not None:
            yield item
