"""Virtual time, and the agenda of future events."""

import heapq
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Clock:
    """The simulated time in seconds; calling it returns the time, as with a real clock."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the present second."""
        return self.now


class Agenda(Generic[Thing]):
    """Future events by time; events of the same second keep the order of their entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Thing]] = []
        self._entries = 0

    def add(self, at: float, thing: Thing) -> None:
        """Add an event at the second `at`."""
        heapq.heappush(self._heap, (at, self._entries, thing))
        self._entries += 1

    def take_due(self, now: float) -> list[tuple[float, Thing]]:
        """Remove and return the (time, event) pairs up to `now`, earliest first."""
        due: list[tuple[float, Thing]] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, thing = heapq.heappop(self._heap)
            due.append((at, thing))
        return due

    @property
    def next_at(self) -> float | None:
        """Return the second of the next event; None if there is none."""
        return self._heap[0][0] if self._heap else None
