"""Whether a request may join the queue, and when one that may not should come back."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from caesura.runtime.server.load.backlog import Backlog, Machine

MAX_RETRY_SECONDS = 300
"""The longest `Retry-After`: predictions of far times are poor."""
MAX_UNTOLD_SECONDS = 5.0
"""How long an admitted request is counted while no record tells of it: it may never reach one."""


class Refusal(NamedTuple):
    """Why a request is refused, as an error's code and message, and the seconds to wait."""

    code: str
    message: str
    retry_seconds: int


def refusal(
    in_flight: int, most_in_flight: int, wait_seconds: float, most_wait_seconds: float
) -> Refusal | None:
    """Return why a request may not begin, or None if it may.

    `wait_seconds` is how long it is predicted to wait. With `most_wait_seconds` 0 it may wait for
    ever. Pure.
    """
    if in_flight >= most_in_flight:
        retry = _whole(wait_seconds)
        return Refusal(
            "too_many_requests",
            f"{most_in_flight} requests are in flight, the most that this server takes: retry "
            f"after {retry} s.",
            retry,
        )
    if most_wait_seconds and wait_seconds > most_wait_seconds:
        retry = _whole(wait_seconds - most_wait_seconds)
        return Refusal(
            "queue_too_long",
            f"The request would wait for about {wait_seconds:.0f} s, and this server lets none "
            f"wait for more than {most_wait_seconds:g} s (--max-queue-seconds): retry after "
            f"{retry} s.",
            retry,
        )
    return None


def _whole(seconds: float) -> int:
    return min(MAX_RETRY_SECONDS, max(1, ceil(seconds)))


class QueueBound:
    """The predicted wait of a new request, over all engines of a server, and the bound on it.

    Records come some tenths of a second late. A request that was admitted since counts as an
    average one. Without records the wait is 0, and only the number in flight is bounded.
    """

    def __init__(
        self,
        most_seconds: float = 0.0,
        machines: Sequence[Machine] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it; `machines` are the engines by rank, and `clock` returns Unix seconds.

        A request may wait for `most_seconds`, or for any time if that is 0.
        """
        self.most_seconds = most_seconds
        self._backlogs = [Backlog(machine) for machine in machines]
        self._clock = clock
        self._untold: deque[float] = deque()
        """When requests were admitted that no record tells of."""

    def take(self, rank: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Take records of the engine of a rank."""
        if rank < len(self._backlogs):
            self._backlogs[rank].take(records)

    def forget(self) -> None:
        """Forget all requests in the engines, which have ended with them."""
        for backlog in self._backlogs:
            backlog.forget()

    def admitted(self) -> None:
        """Count a request that was admitted."""
        if self._backlogs:
            self._untold.append(self._clock())
            self._drop_told()

    @property
    def wait_seconds(self) -> float:
        """How long a new request is predicted to wait, in the engine with the least work."""
        if not self._backlogs:
            return 0.0
        self._drop_told()
        least = min(self._backlogs, key=lambda each: each.seconds)
        untold = len(self._untold) / len(self._backlogs)
        return least.seconds + untold * least.mean_seconds

    def _drop_told(self) -> None:
        told_until = max(each.told_until for each in self._backlogs)
        oldest = max(told_until, self._clock() - MAX_UNTOLD_SECONDS)
        while self._untold and self._untold[0] <= oldest:
            self._untold.popleft()

    def refusal(self, in_flight: int, most_in_flight: int) -> Refusal | None:
        """Return why a further request may not begin beside those in flight, or None."""
        if in_flight < most_in_flight and not self.most_seconds:
            return None  # the usual case, which predicts nothing
        return refusal(in_flight, most_in_flight, self.wait_seconds, self.most_seconds)
