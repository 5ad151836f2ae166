"""The distribution of token counts of segments or tool results: a window of them, and a prior.

The prior counts as a few observations of a memoryless length, as with the pauses of
`intercept/kv/pause_durations.py`. An overdue length continues in the same proportion.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Mapping
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caesura.intercept.kv.pause_durations import OVERDUE

WINDOW = 1000
"""The number of lengths in Past-Future's history (section 4)."""

UNSEEN_FACTOR = 2
"""A draw beyond all lengths in the window is this many times the decoded tokens."""

Tokens = NDArray[np.int64]


MOST = 1e15
"""The largest prior and weight: the sums and products of larger ones are not finite."""


class Lengths:
    """The last token counts of one kind; a full window drops its oldest.

    `prior_tokens` is the mean that is assumed before the first count, `prior_weight` the number of
    observations that it counts as, and `window` the number of counts that are kept. `recent` are
    the first counts, oldest first. Raises `ValueError` for a prior or weight that is not positive
    or above `MOST`, for a window below 1, and for a negative count.
    """

    def __init__(
        self,
        prior_tokens: float,
        prior_weight: float = 2.0,
        window: int = WINDOW,
        recent: Iterable[int] = (),
    ) -> None:
        if not (0 < prior_tokens <= MOST and 0 < prior_weight <= MOST and window >= 1):
            raise ValueError(
                f"prior_tokens and prior_weight must be positive and at most {MOST:g}, window >= 1,"
                f" got {prior_tokens!r}, {prior_weight!r} and {window!r}"
            )
        self._prior_tokens = prior_tokens
        self._prior_weight = prior_weight
        self._recent: deque[int] = deque(recent, maxlen=window)
        if min(self._recent, default=0) < 0:
            raise ValueError(f"token counts must be >= 0, got {min(self._recent)!r}")
        self._sorted = sorted(self._recent)
        self._total = sum(self._sorted)
        self._array: Tokens | None = None

    def observe(self, tokens: int) -> None:
        """Add a token count; raises `ValueError` if it is negative."""
        if tokens < 0:
            raise ValueError(f"token count must be >= 0, got {tokens!r}")
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
        """Return the number of counts in the window."""
        return len(self._recent)

    @property
    def mean(self) -> float:
        """Return the expected number of tokens of a new length."""
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._tail_mean) / whole

    @property
    def _tail_mean(self) -> float:
        whole = self.count + self._prior_weight
        return (self._total + self._prior_weight * self._prior_tokens) / whole

    def remaining(self, tokens: int) -> float:
        """Return the expected number of further tokens: E[l - tokens | l > tokens].

        The result is at least `OVERDUE` times `tokens`.
        """
        index, tail_mean = bisect_right(self._sorted, tokens), self._tail_mean
        longer = self.count - index
        if not longer:
            return max(tail_mean, OVERDUE * tokens)
        seen = (sum(self._sorted[index:]) if index else self._total) - longer * tokens
        unseen = self._prior_weight * exp(-tokens / tail_mean)
        return max((seen + unseen * tail_mean) / (longer + unseen), OVERDUE * tokens)

    def reaches(self, tokens: float) -> float:
        """Return the probability that a length is at least `tokens`."""
        longer = self.count - bisect_left(self._sorted, tokens)
        unseen = self._prior_weight * exp(-max(0.0, tokens) / self._tail_mean)
        return (longer + unseen) / (self.count + self._prior_weight)

    def sample(self, decoded: int, uniform: float) -> int:
        """Return a draw from P(l | l > decoded), without the prior (Past-Future, equation 1).

        `uniform` is a number in [0, 1). If no length in the window is longer, the result is
        `UNSEEN_FACTOR` times `decoded`.
        """
        first = bisect_right(self._sorted, decoded)
        longer = len(self._sorted) - first
        return self._sorted[first + int(uniform * longer)] if longer else _beyond(decoded)

    def samples(self, decoded: Tokens, uniform: NDArray[np.float64]) -> Tokens:
        """Return draws as `sample` makes them, for n segments at once and k times for each.

        `decoded` has the shape (n,), `uniform` and the result have (k, n).
        """
        if self._array is None:
            self._array = np.asarray(self._sorted, dtype=np.int64)
        first = np.searchsorted(self._array, decoded, side="right")
        longer = len(self._array) - first
        # The appended 0 keeps the index valid where no length is longer; it is replaced below.
        drawn = np.append(self._array, 0)[first + (uniform * longer).astype(np.int64)]
        known = longer > 0
        if not known.all():
            beyond = [_beyond(tokens) for tokens in decoded.tolist()]
            drawn = np.where(known, drawn, np.array(beyond, dtype=np.int64))
        return drawn

    def to_wire(self) -> dict[str, Any]:
        """Return the lengths as plain data, which `from_wire` reads."""
        return {
            "prior_tokens": self._prior_tokens,
            "prior_weight": self._prior_weight,
            "window": self._recent.maxlen,
            "recent": list(self._recent),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Lengths":
        """Return the lengths that `to_wire` wrote; raises `ValueError` for any other data."""
        try:
            recent = [int(tokens) for tokens in wire["recent"]]
            if max(recent, default=0) > np.iinfo(np.int32).max:
                raise ValueError(f"token counts must fit 32 bits, got {max(recent)}")
            window = min(int(wire["window"]), WINDOW)
            return cls(float(wire["prior_tokens"]), float(wire["prior_weight"]), window, recent)
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a record of lengths: {error!r}, in {wire!r:.200}") from error


def _beyond(decoded: int) -> int:
    return max(1, UNSEEN_FACTOR * decoded)
