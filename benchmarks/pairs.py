"""Ratios of paired measurements, and their spread."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """The ratio of B to A, pair by pair."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f} .. {self.high:.3f}]"


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio:
    """Compare pair by pair; the spread is that of the middle half of the pairs."""
    ratios = sorted(b / a for b, a in zip(of, to, strict=True))
    if len(ratios) < 4:
        return Ratio(statistics.median(ratios), ratios[0], ratios[-1])
    low, _, high = statistics.quantiles(ratios, n=4)
    return Ratio(statistics.median(ratios), low, high)
