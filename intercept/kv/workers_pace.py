"""The pace of copies that several workers make together: that of the slowest of them.

Each worker copies its own share of every block. A block is on the host, or back, when all workers
have copied their share. Their reports come in different steps, so that a sum or a maximum over a
step's reports would be wrong in either direction.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Pace(NamedTuple):
    """Tokens of KV that all workers have copied, and the seconds of the slowest of them.

    The copies ran for `beside` of the `seconds` during a forward pass.
    """

    tokens: int
    seconds: float
    beside: float


@dataclass(slots=True)
class _Ahead:
    """What one worker has copied, and not all workers have."""

    tokens: float = 0.0
    seconds: float = 0.0
    beside: float = 0.0

    def take(self, tokens: float) -> tuple[float, float]:
        """Remove so many tokens; return their part of the seconds, in all and beside a step."""
        share = min(1.0, tokens / self.tokens)
        seconds, beside = self.seconds * share, self.beside * share
        self.tokens -= tokens
        self.seconds -= seconds
        self.beside -= beside
        return seconds, beside


class WorkersPace:
    """Pairs up the reports of `workers` workers about copies in one direction."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._ahead: dict[int, _Ahead] = {}

    def add(self, worker: int, tokens: float, seconds: float, beside: float) -> Pace | None:
        """Take a worker's report; return what all workers have copied by now, or None."""
        ahead = self._ahead.setdefault(worker, _Ahead())
        ahead.tokens += tokens
        ahead.seconds += seconds
        ahead.beside += beside
        if len(self._ahead) < self._workers:
            return None
        done = int(min(each.tokens for each in self._ahead.values()) + 0.5)
        if done < 1:
            return None
        slowest = max(each.take(done) for each in self._ahead.values())
        return Pace(done, *slowest)

    def forget(self) -> None:
        """Drop what some workers have not copied, since they will not."""
        self._ahead.clear()
