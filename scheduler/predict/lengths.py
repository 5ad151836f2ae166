"""How many tokens segments decode, or tools return: a window of the last ones, and a prior.

The prior is a few observations' worth of a memoryless length, as it is with the pauses of
`intercept/kv/pause_durations.py`, and what is overdue is expected to go on in the same proportion.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Mapping
from math import exp, inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.intercept.kv.pause_durations import OVERDUE

WINDOW = 1000
"""As many as Past-Future's history (section 4)."""

UNSEEN_FACTOR = 2
"""A length beyond all that were seen is drawn as so many times what is there already."""

Tokens = NDArray[np.int64]


class Lengths:
    """Token counts of one kind, in the order in which they were seen; the oldest are forgotten.

    `prior_tokens` is the mean that is believed before anything is seen, `prior_weight` how many
    observations that belief is worth, `window` how many are remembered. Raises `ValueError` for
    numbers that are not such.
    """

    def __init__(
        self,
        prior_tokens: float,
        prior_weight: float = 2.0,
        window: int = WINDOW,
        recent: Iterable[int] = (),
    ) -> None:
        if not (0 < prior_tokens < inf and 0 < prior_weight < inf and window >= 1):
            raise ValueError(
                "a prior is two positive numbers, and a window holds at least one, "
                f"not {prior_tokens!r}, {prior_weight!r} and {window!r}"
            )
        self._prior_tokens = prior_tokens
        self._prior_weight = prior_weight
        self._recent: deque[int] = deque(recent, maxlen=window)
        if not all(tokens >= 0 for tokens in self._recent):
            raise ValueError("lengths are numbers of tokens, none below zero")
        self._sorted = sorted(self._recent)
        self._total = sum(self._sorted)
        self._array: Tokens | None = None

    def observe(self, tokens: int) -> None:
        """Learn from one more; raises `ValueError` if it is below zero."""
        if tokens < 0:
            raise ValueError(f"a length of {tokens!r} tokens")
        if len(self._recent) == self._recent.maxlen:
            oldest = self._recent[0]
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._total -= oldest
        self._recent.append(tokens)
        insort(self._sorted, tokens)
        self._total += tokens
        self._array = None

    @property
    def count(self) -> int:
        """How many the window holds."""
        return len(self._recent)

    @property
    def mean(self) -> float:
        """Tokens that are expected before the first has come."""
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._tail_mean) / whole

    @property
    def _tail_mean(self) -> float:
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._prior_tokens) / whole

    def remaining(self, tokens: int) -> float:
        """Return how many more are expected after so many: E[l - tokens | l > tokens].

        It is never less than `OVERDUE` times those that have come.
        """
        index, tail_mean = bisect_right(self._sorted, tokens), self._tail_mean
        longer = self.count - index
        if not longer:
            return max(tail_mean, OVERDUE * tokens)
        seen = (sum(self._sorted[index:]) if index else self._total) - longer * tokens
        unseen = self._prior_weight * exp(-tokens / tail_mean)
        return max((seen + unseen * tail_mean) / (longer + unseen), OVERDUE * tokens)

    def sample(self, decoded: int, uniform: float) -> int:
        """Draw a length from P(l | l > decoded), the window alone (Past-Future, equation 1).

        `uniform` is a number in [0, 1). Where nothing in the window is longer, the length is
        `UNSEEN_FACTOR` times what is decoded.
        """
        first = bisect_right(self._sorted, decoded)
        longer = len(self._sorted) - first
        return self._sorted[first + int(uniform * longer)] if longer else _beyond(decoded)

    def samples(self, decoded: Tokens, uniform: NDArray[np.float64]) -> Tokens:
        """Draw as `sample` does, for n segments at once and k times for each.

        `decoded` is (n,), `uniform` (k, n). Returns (k, n) lengths.
        """
        if self._array is None:
            self._array = np.asarray(self._sorted, dtype=np.int64)
        first = np.searchsorted(self._array, decoded, side="right")
        longer = len(self._array) - first
        # The appended 0 is what there is to take where nothing is longer; it is replaced.
        drawn = np.append(self._array, 0)[first + (uniform * longer).astype(np.int64)]
        known = longer > 0
        if not known.all():
            beyond = [_beyond(tokens) for tokens in decoded.tolist()]
            drawn = np.where(known, drawn, np.array(beyond, dtype=np.int64))
        return drawn

    def to_wire(self) -> dict[str, Any]:
        """Return plain data; `from_wire` reads it back."""
        return {
            "prior_tokens": self._prior_tokens,
            "prior_weight": self._prior_weight,
            "window": self._recent.maxlen,
            "recent": list(self._recent),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Lengths":
        """Read what `to_wire` wrote; raises `ValueError` if it is anything else."""
        try:
            recent = [int(tokens) for tokens in wire["recent"]]
            if max(recent, default=0) > np.iinfo(np.int32).max:
                raise ValueError("lengths are numbers of tokens, not as large as these")
            window = min(int(wire["window"]), WINDOW)
            return cls(float(wire["prior_tokens"]), float(wire["prior_weight"]), window, recent)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a record of lengths: {error!r}") from error


def _beyond(decoded: int) -> int:
    return max(1, UNSEEN_FACTOR * decoded)
