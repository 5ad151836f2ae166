"""Ratios of paired measurements, and their spread."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """The ratio of B to A, pair by pair."""

    median: float
    low: float
    high: float
    few: tuple[float, ...] = ()
    """The pairs themselves where they are too few for a spread."""

    def __str__(self) -> str:
        if self.few:
            return ", ".join(f"{each:.3f}" for each in self.few)
        return f"{self.median:.3f} [{self.low:.3f} .. {self.high:.3f}]"


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio:
    """Compare pair by pair; the spread is that of the middle half of the pairs.

    Of three pairs it is that of all, and fewer have none: they are told one by one.
    """
    pairs = tuple(b / a for b, a in zip(of, to, strict=True))
    ratios = sorted(pairs)
    if len(ratios) < 4:
        few = pairs if len(pairs) < 3 else ()
        return Ratio(statistics.median(ratios), ratios[0], ratios[-1], few)
    low, _, high = statistics.quantiles(ratios, n=4)
    return Ratio(statistics.median(ratios), low, high)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the least interval of order statistics that holds the median in 95 % of samples.

    It asks nothing of the distribution (the sign test's interval, binomial quantiles by their
    normal approximation). Raises `ValueError` for fewer than six values, which can't hold it.
    """
    if len(values) < 6:
        raise ValueError(f"six values or more are needed for an interval, not {len(values)}")
    ordered, count = sorted(values), len(values)
    below = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return ordered[below], ordered[count - 1 - below]
