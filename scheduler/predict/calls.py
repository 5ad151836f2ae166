"""How many calls sessions make: the hazard that one ends with the segment that it is in.

q[n] = P(N = n | N >= n) of N calls is a ratio of two counts, sessions that ended after n calls and
those that came so far. A kind of few sessions leans on all kinds together, and those on a geometric
distribution, whose hazard is the same everywhere.

What a session is compared with changes from the tools that it is offered to the tool that it
called, so that its end counts for every kind that it has been of. Otherwise those that end as they
began would be those without a call, and would say that nobody ever calls.
"""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.predict.kinds import Kinds

PRIOR_CALLS = 4.0
"""Calls of a session, before any has ended."""

WEIGHT = 2.0
"""How many sessions a belief from elsewhere is worth, at every n."""

HORIZON = 80
"""How many hazards are told from where a session stands."""

MAX_CALLS = 256
MAX_SESSIONS = 1000
MIN_ALIVE_SHARE = 1e-3

BINS = MAX_CALLS + HORIZON

Hazards = NDArray[np.float64]


class CallCounts:
    """How many sessions of one kind ended after n calls.

    All counts are halved when they exceed `MAX_SESSIONS` together, so that what is recent counts
    more. A session of `MAX_CALLS` calls or more counts as one that goes on.
    """

    def __init__(self) -> None:
        self._ended = np.zeros(BINS)  # [n]: sessions of n calls
        self._longer = 0.0
        self._made: tuple[Hazards, Hazards] | None = None

    def observe_end(self, calls: int) -> None:
        """A session of this kind has ended; raises `ValueError` if `calls` is below zero."""
        if calls < 0:
            raise ValueError(f"a session of {calls!r} calls")
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
        """How many have ended."""
        return float(self._ended.sum()) + self._longer

    def hazards(self, prior: Hazards) -> Hazards:
        """Return q[n] for n < `BINS`, where `WEIGHT` more sessions are as `prior` says.

        The same object for the same prior, until a session ends.
        """
        if self._made is None or self._made[0] is not prior:
            alive = np.cumsum(self._ended[::-1])[::-1] + self._longer
            self._made = prior, (self._ended + WEIGHT * prior) / (alive + WEIGHT)
        return self._made[1]

    def to_wire(self) -> dict[str, Any]:
        """Return plain data; `from_wire` reads it back."""
        ended = np.trim_zeros(self._ended, "b").tolist()
        return {"ended": ended, "longer": self._longer}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "CallCounts":
        """Read what `to_wire` wrote; raises `ValueError` if it is anything else."""
        counts = cls()
        try:
            ended = [float(sessions) for sessions in wire["ended"]]
            counts._longer = float(wire["longer"])
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not counts of calls: {error!r}") from error
        if len(ended) > MAX_CALLS:
            raise ValueError(f"counts go up to {MAX_CALLS} calls, not {len(ended)}")
        if not all(0 <= count < inf for count in (*ended, counts._longer)):
            raise ValueError("counts are finite numbers, none below zero")
        counts._ended[: len(ended)] = ended
        return counts


class Calls:
    """Hazards by kind.

    `mean` is how many calls are expected of a session before any has ended; raises `ValueError`
    if it is not positive.
    """

    def __init__(self, mean: float = PRIOR_CALLS) -> None:
        if not 0 < mean < inf:
            raise ValueError(f"a mean of {mean!r} calls")
        self.kinds: Kinds[CallCounts] = Kinds(CallCounts(), lambda _: CallCounts())
        self._prior: Hazards = np.full(BINS, 1 / (1 + mean))

    def observe_end(self, kind: str, calls: int) -> None:
        """A session has ended after so many calls; told for every kind that it has been of."""
        self.kinds.together.observe_end(calls)
        self.kinds.learn(kind).observe_end(calls)

    def ends(self, kind: str, calls: int) -> tuple[float, ...]:
        """Return the hazards of a session of that kind from here on, after so many calls.

        There are `HORIZON` of them, or as many as leave fewer than `MIN_ALIVE_SHARE` of all
        sessions behind them.
        """
        hazards = self.kinds.together.hazards(self._prior)
        counts = self.kinds.find(kind)
        if counts is not None:
            hazards = counts.hazards(hazards)
        start = min(calls, MAX_CALLS)
        hazards = hazards[start : start + HORIZON]
        alive = np.cumprod(1 - hazards)
        return tuple(hazards[: 1 + int(np.searchsorted(-alive, -MIN_ALIVE_SHARE))].tolist())
