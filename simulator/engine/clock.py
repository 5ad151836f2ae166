"""Virtual time, and what is going to happen when."""

import heapq
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Clock:
    """The simulated second at which everything stands; called, it tells it, as a clock does."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the present second."""
        return self.now


class Agenda(Generic[Thing]):
    """What happens at which second; things of the same second in the order of their entry."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Thing]] = []
        self._entries = 0

    def add(self, at: float, thing: Thing) -> None:
        """Have the thing happen at that second."""
        heapq.heappush(self._heap, (at, self._entries, thing))
        self._entries += 1

    def take_due(self, now: float) -> list[tuple[float, Thing]]:
        """Take out what has happened by now, and when that was, the earliest first."""
        due: list[tuple[float, Thing]] = []
        while self._heap and self._heap[0][0] <= now:
            at, _, thing = heapq.heappop(self._heap)
            due.append((at, thing))
        return due

    @property
    def next_at(self) -> float | None:
        """The second of the next thing; None: nothing is to come."""
        return self._heap[0][0] if self._heap else None
