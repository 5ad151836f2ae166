"""The events of one response, which any number of readers follow from any point on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses.items.output import Event


class Feed:
    """Events so far, and whether more will come. The event's number is its `sequence_number`.

    Events that are held back are not read before they are released, or the feed ends.
    """

    def __init__(self) -> None:
        self._released = 0
        self._events: list[Event] = []
        self._changed = asyncio.Event()
        self.is_ended = False
        self.error: ApiError | None = None
        """The error that ended the response, if one did; the last event tells it too."""
        self.failed_first = False
        """Whether the error came before any event of the run."""

    def push(self, events: Sequence[Event], *, held: bool = False) -> None:
        """Append events, and wake the readers unless the events are held back."""
        self._events.extend(events)
        if not held:
            self.release(len(self._events))

    def release(self, count: int) -> None:
        """Let the first `count` events be read."""
        if count > self._released:
            self._released = count
            self._wake()

    def end(self, error: ApiError | None = None, *, failed_first: bool = False) -> None:
        """Record that no more events will come."""
        self.is_ended, self.error, self.failed_first = True, error, failed_first
        self._released = len(self._events)
        self._wake()

    async def read(self, after: int = -1) -> AsyncGenerator[Event, None]:
        """Yield the events behind the one with the number `after`, until the feed ends."""
        position = after + 1
        while True:
            changed = self._changed
            while position < self._released:
                yield self._events[position]
                position += 1
            if self.is_ended:
                return
            await changed.wait()

    async def ended(self) -> None:
        """Return when no more events will come."""
        while not self.is_ended:
            await self._changed.wait()

    def __len__(self) -> int:
        """Return the number of events so far."""
        return len(self._events)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
