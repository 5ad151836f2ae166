"""The link between device and host: copies in simulated time, one after the other.

Both directions share the link's rate, unless it is full duplex. Copies that a step waits for go
first, as in `caesura.scheduler.vllm.engine.swap.copier`. All others keep their order and continue
between steps.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

WINDOWS = 64
"""The number of forward passes that are kept, to measure the copies beside them."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy: it takes `seconds`, from the time `begins` to the time `ends`.

    `out`: it goes from the device to the host. `urgent`: a step waits for it.
    """

    order: Any
    out: bool
    blocks: int
    seconds: float
    urgent: bool = False
    begins: float = 0.0
    ends: float = 0.0


@dataclass(slots=True)
class _Lane:
    """Copies that run one after the other without a gap."""

    urgent: deque[Copy] = field(default_factory=deque)
    others: deque[Copy] = field(default_factory=deque)

    def put(self, copy: Copy, now: float) -> None:
        ahead = self.urgent if copy.urgent else self.others or self.urgent
        copy.begins = max(now, ahead[-1].ends) if ahead else now
        copy.ends = copy.begins + copy.seconds
        if not copy.urgent:
            self.others.append(copy)
            return
        self.urgent.append(copy)
        for other in self.others:
            other.begins += copy.seconds if other.begins >= now else 0.0
            other.ends += copy.seconds

    def take_done(self, now: float) -> list[Copy]:
        done: list[Copy] = []
        for queue in (self.urgent, self.others):
            while queue and queue[0].ends <= now:
                done.append(queue.popleft())
        return done

    def ends(self) -> Iterable[tuple[float, float]]:
        """Return the ends of the first and the last copy of each queue."""
        return [(queue[0].ends, queue[-1].ends) for queue in (self.urgent, self.others) if queue]


class Link:
    """A link that carries `bytes_per_second`; an infinite rate serves as a bound."""

    def __init__(self, bytes_per_second: float, full_duplex: bool) -> None:
        self._rate = bytes_per_second
        lane = _Lane()
        self._out, self._in = lane, _Lane() if full_duplex else lane
        self._lanes = [self._out, self._in] if full_duplex else [lane]
        self._windows: deque[tuple[float, float]] = deque(maxlen=WINDOWS)

    def put(
        self, order: Any, blocks: int, size: int, now: float, *, out: bool, urgent: bool = False
    ) -> Copy:
        """Queue a copy of `blocks` blocks with `size` bytes together, and return it."""
        copy = Copy(order, out, blocks, size / self._rate, urgent)
        (self._out if out else self._in).put(copy, now)
        return copy

    def take_done(self, now: float) -> list[Copy]:
        """Remove and return the copies that have ended by `now`."""
        return [copy for lane in self._lanes for copy in lane.take_done(now)]

    def forward(self, begins: float, ends: float) -> None:
        """Record a forward pass."""
        self._windows.append((begins, ends))

    def beside(self, copy: Copy) -> float:
        """Return the seconds of a copy that ran beside forward passes."""
        total = 0.0
        for begins, ends in reversed(self._windows):
            if ends <= copy.begins:
                break
            total += max(0.0, min(ends, copy.ends) - max(begins, copy.begins))
        return min(total, copy.seconds)

    @property
    def next_end(self) -> float | None:
        """Return when the next copy ends; None if there is none."""
        return min((first for lane in self._lanes for first, _ in lane.ends()), default=None)

    def idle_at(self, now: float) -> float:
        """Return when the last queued copy ends, or `now` if there is none."""
        return max((last for lane in self._lanes for _, last in lane.ends()), default=now)
