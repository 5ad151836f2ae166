"""The number of calls of sessions: the hazard that a session ends with its current segment.

q[n] = P(N = n | N >= n) for N calls is a ratio of two counts: sessions that ended after n calls,
and sessions that made at least n. A kind with few sessions leans on all kinds together. Those lean
on a geometric distribution, whose hazard is constant.

A session changes its kind at a call, from the tools that it is offered to the tool that it called.
Its end counts for every kind that it had. Otherwise only sessions without a call would count for
their first kind, and that kind would seem to make no calls.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.predict.kinds import Kinds

PRIOR_CALLS = 4.0
"""The assumed number of calls of a session before any session has ended."""

WEIGHT = 2.0
"""The number of sessions that a prior counts as, at every n."""

HORIZON = 80
"""The largest number of hazards in a forecast."""

MAX_CALLS = 256
MAX_SESSIONS = 1000
MIN_ALIVE_SHARE = 1e-3

BINS = MAX_CALLS + HORIZON

Hazards = NDArray[np.float64]


class CallCounts:
    """Counts of the sessions of one kind that ended after n calls.

    All counts are halved when their sum exceeds `MAX_SESSIONS`, so that recent sessions count more.
    A session of `MAX_CALLS` calls or more counts as one that continues.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(BINS)  # [n]: sessions of n calls
        self._longer = 0.0
        self._made: tuple[Hazards, Hazards] | None = None

    def observe_end(self, calls: int) -> None:
        """Count a session that ended after `calls`; raises `ValueError` if that is negative."""
        if calls < 0:
            raise ValueError(f"calls of a session must be >= 0, got {calls!r}")
        if calls < MAX_CALLS:
            self._ended[calls] += 1
        else:
            self._longer += 1
        self._made = None
        if self.sessions > MAX_SESSIONS:
            self._ended *= 0.5
            self._longer *= 0.5

    @property
    def sessions(self) -> float:
        """Return the number of ended sessions."""
        return float(self._ended.sum()) + self._longer

    def hazards(self, prior: Hazards) -> Hazards:
        """Return q[n] for n < `BINS`; `prior` counts as `WEIGHT` further sessions.

        The same prior gives the same object until a session ends.
        """
        if self._made is None or self._made[0] is not prior:
            alive = np.cumsum(self._ended[::-1])[::-1] + self._longer
            self._made = prior, (self._ended + WEIGHT * prior) / (alive + WEIGHT)
        return self._made[1]

    def to_wire(self) -> dict[str, Any]:
        """Return the counts as plain data, which `from_wire` reads."""
        ended = np.trim_zeros(self._ended, "b").tolist()
        return {"ended": ended, "longer": self._longer}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CallCounts":
        """Return the counts that `to_wire` wrote; raises `ValueError` for any other data."""
        counts = cls()
        try:
            ended = [float(sessions) for sessions in wire["ended"]]
            counts._longer = float(wire["longer"])
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not counts of calls: {error!r}, in {wire!r:.200}") from error
        if len(ended) > MAX_CALLS:
            raise ValueError(f"there may be at most {MAX_CALLS} counts of calls, got {len(ended)}")
        wrong = [count for count in (*ended, counts._longer) if not 0 <= count < inf]
        if wrong:
            raise ValueError(f"counts of sessions must be finite and >= 0, got {wrong[0]!r}")
        counts._ended[: len(ended)] = ended
        return counts


class Calls:
    """Hazards by kind of session.

    `mean` is the assumed number of calls before any session has ended. Raises `ValueError` if it
    is not positive.
    """

    def __init__(self, mean: float = PRIOR_CALLS) -> None:
        if not 0 < mean < inf:
            raise ValueError(f"the mean number of calls must be positive, got {mean!r}")
        self.kinds: Kinds[CallCounts] = Kinds(CallCounts(), lambda _: CallCounts())
        self._prior: Hazards = np.full(BINS, 1 / (1 + mean))

    def observe_end(self, kind: str, calls: int) -> None:
        """Count an ended session with `calls`; the caller repeats this for each of its kinds."""
        self.kinds.together.observe_end(calls)
        self.kinds.learn(kind).observe_end(calls)

    def ends(self, kind: str, calls: int) -> tuple[float, ...]:
        """Return the hazards of a session of this kind from its current segment on.

        The session has made `calls` so far. The result has `HORIZON` hazards, or fewer if less than
        `MIN_ALIVE_SHARE` of such sessions remain after them.
        """
        hazards = self.kinds.together.hazards(self._prior)
        counts = self.kinds.find(kind)
        if counts is not None:
            hazards = counts.hazards(hazards)
        start = min(calls, MAX_CALLS)
        hazards = hazards[start : start + HORIZON]
        alive = np.cumprod(1 - hazards)
        return tuple(hazards[: 1 + int(np.searchsorted(-alive, -MIN_ALIVE_SHARE))].tolist())
