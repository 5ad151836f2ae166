"""Runs that wait for an item, and listeners that watch all of them."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager

from caesura.tools.people.pending import Pending

MAX_BEHIND = 1000
"""So many items may be waiting for a listener before it is dropped."""


class Waiting:
    """An open item, and the runs of this process that wait for it."""

    def __init__(self, item: Pending, identity: str) -> None:
        self.item = item
        self.identity = identity
        self.runs = 0
        self.calling: asyncio.Task[None] | None = None
        """The callback at work on it."""
        self._settled: asyncio.Future[Pending] = asyncio.get_running_loop().create_future()

    @property
    def is_open(self) -> bool:
        """Whether there is still something to wait for."""
        return not self._settled.done()

    @property
    def is_settled(self) -> bool:
        """Whether it was settled, and has not failed."""
        return self._settled.done() and self._settled.exception() is None

    async def result(self) -> Pending:
        """The settled item; raises what `fail` was given."""
        # Shielded: one of several runs may give up.
        return await asyncio.shield(self._settled)

    def settle(self, item: Pending) -> None:
        """Let the runs go on."""
        self.item = item
        if self.is_open:
            self._settled.set_result(item)

    def fail(self, error: Exception) -> None:
        """Let the runs fail."""
        if self.is_open:
            self._settled.set_exception(error)
            self._settled.exception()  # seen, even where nobody waits any more


class Listeners:
    """Whoever wants to know of every change."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Pending | None]] = set()

    @contextmanager
    def listen(self) -> Iterator[asyncio.Queue[Pending | None]]:
        """A queue of items; None is its end."""
        queue: asyncio.Queue[Pending | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            yield queue
        finally:
            self._queues.discard(queue)

    def tell(self, item: Pending) -> None:
        """Tell everybody."""
        for queue in list(self._queues):
            if queue.qsize() < MAX_BEHIND:
                queue.put_nowait(item)
            else:
                self._end(queue)

    def end(self) -> None:
        """There is nothing more to tell."""
        for queue in list(self._queues):
            self._end(queue)

    @staticmethod
    def ids_in(queue: asyncio.Queue[Pending | None]) -> set[str]:
        """The items of which changes wait in the queue, which stay there."""
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
        """Yield these, and then what comes, to the end."""
        for known in first:
            yield known
        while (item := await queue.get()) is not None:
            yield item
