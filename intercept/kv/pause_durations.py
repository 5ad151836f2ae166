"""What is known about how long a tool keeps its callers waiting.

A sample of recent pauses, and a prior for what the sample has not shown. The prior is a few
observations' worth of an exponential pause whose mean is that of all that is known: as the sample
grows it becomes the tail that a bounded sample cannot have.

A tool that is overdue is not about to return. However the estimate is made, a pause that has
lasted `elapsed` is expected to last `OVERDUE` times that on, at least: without such a floor an
underestimated tool looks for ever as if it returned at any moment.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, inf, isfinite, sqrt
from typing import Any

SAMPLE_SIZE = 128
FEW_OBSERVATIONS = 4
OVERDUE = 0.3


@dataclass(frozen=True, slots=True)
class Durations:
    """Pauses of one tool, in seconds; immutable, so that a record of it stays what it was.

    `prior_seconds` is the mean that is believed before anything is seen, `prior_weight` how many
    observations that belief is worth. `recent` are the last pauses in the order in which they were
    seen. Raises `ValueError` for numbers that are not such.
    """

    prior_seconds: float
    prior_weight: float = 1.0
    recent: tuple[float, ...] = ()
    sample: tuple[float, ...] = field(init=False, repr=False, compare=False)
    mean: float = field(init=False, repr=False, compare=False)
    spread: float = field(init=False, repr=False, compare=False)
    _sums: tuple[float, ...] = field(init=False, repr=False, compare=False)  # of sample[i:]
    tail_mean: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        prior, weight = self.prior_seconds, self.prior_weight
        if not (0 < prior < inf and 0 < weight < inf):
            raise ValueError(f"a prior is two positive numbers, not {prior!r} and {weight!r}")
        if len(self.recent) > SAMPLE_SIZE:
            raise ValueError(f"a sample has at most {SAMPLE_SIZE} pauses, not {len(self.recent)}")
        if not all(0 <= seconds < inf for seconds in self.recent):
            raise ValueError("pauses are finite numbers of seconds, none below zero")
        sample = tuple(sorted(self.recent))
        total, whole = sum(sample), len(sample) + weight
        tail_mean = (total + weight * prior) / whole
        mean = (total + weight * tail_mean) / whole
        square = (sum(s * s for s in sample) + weight * 2 * tail_mean * tail_mean) / whole
        sums = tuple(accumulate(reversed(sample), initial=0.0))[::-1]
        put = object.__setattr__
        put(self, "sample", sample)
        put(self, "mean", mean)
        put(self, "spread", sqrt(max(0.0, square - mean * mean)) / mean)
        put(self, "_sums", sums)
        put(self, "tail_mean", tail_mean)

    def observe(self, seconds: float) -> "Durations":
        """Return what is known after one more pause; the oldest of a full sample is forgotten.

        A pause below zero, as from a clock that was set back, counts as none. Raises `ValueError`
        if `seconds` is not finite.
        """
        if not isfinite(seconds):
            raise ValueError(f"a pause of {seconds!r} seconds")
        kept = self.recent[-(SAMPLE_SIZE - 1) :]
        return Durations(self.prior_seconds, self.prior_weight, (*kept, max(0.0, seconds)))

    @property
    def count(self) -> int:
        """How many pauses the sample holds."""
        return len(self.sample)

    @property
    def is_variable(self) -> bool:
        """Whether the mean says little: hardly ever seen, or a coefficient of variation over 1."""
        return len(self.sample) < FEW_OBSERVATIONS or self.spread > 1.0

    def survival(self, seconds: float) -> float:
        """Return the probability that a pause lasts longer than `seconds`."""
        seconds = max(0.0, seconds)
        longer = len(self.sample) - bisect_right(self.sample, seconds)
        unseen = self.prior_weight * exp(-seconds / self.tail_mean)
        return (longer + unseen) / (len(self.sample) + self.prior_weight)

    def mean_residual(self, elapsed: float) -> float:
        """Return how many seconds a pause that has lasted `elapsed` is expected to last on."""
        elapsed = max(0.0, elapsed)
        index = bisect_right(self.sample, elapsed)
        longer = len(self.sample) - index
        if not longer:
            return self.tail_mean
        unseen = self.prior_weight * exp(-elapsed / self.tail_mean)
        seen_seconds = max(0.0, self._sums[index] - longer * elapsed)
        return (seen_seconds + unseen * self.tail_mean) / (longer + unseen)

    def remaining(self, elapsed: float) -> float:
        """Return `mean_residual`, but never less than `OVERDUE` times what has passed already."""
        return max(self.mean_residual(elapsed), OVERDUE * elapsed)

    def to_wire(self) -> dict[str, Any]:
        """Return plain data; `from_wire` reads it back."""
        return {
            "prior_seconds": self.prior_seconds,
            "prior_weight": self.prior_weight,
            "recent": list(self.recent),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Durations":
        """Read what `to_wire` wrote; raises `ValueError` if it is anything else."""
        try:
            return cls(
                float(wire["prior_seconds"]),
                float(wire["prior_weight"]),
                tuple(float(seconds) for seconds in wire["recent"]),
            )
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a record of durations: {error!r}") from error
