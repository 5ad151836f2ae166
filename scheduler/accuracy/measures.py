"""Measures of predictions against what came."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan

BINS = 10
"""Bins of a calibration curve."""

MIN_BIN_PAIRS = 20
"""The number of pairs below which a curve of numbers has a single bin."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of a calibration curve: the means of what was predicted and of what came."""

    count: int
    predicted: float
    actual: float


def mean(values: Sequence[float]) -> float:
    """Return the mean; NaN of no values."""
    return sum(values) / len(values) if values else nan


def mean_absolute_error(predicted: Sequence[float], actual: Sequence[float]) -> float:
    """Return the mean of |predicted - actual|; NaN of no pairs."""
    return mean([abs(p - a) for p, a in zip(predicted, actual, strict=True)])


def brier_score(predicted: Sequence[float], actual: Sequence[float]) -> float:
    """Return the mean squared error of probabilities, 0.0 to 1.0; NaN of no pairs."""
    return mean([(p - a) ** 2 for p, a in zip(predicted, actual, strict=True)])


def pair_accuracy(predicted: Sequence[float], actual: Sequence[float]) -> float:
    """Return the share of pairs of different actual values that the predictions order rightly.

    Equal predictions count as half. The result is 0.5 by chance, and NaN if all actual values are
    equal. If the actual values are 0 and 1, it is the area under the ROC curve. The cost is
    O(n log n).
    """
    ranks = sorted(set(predicted))
    counts = _Counts(len(ranks))
    right, pairs, below = 0.0, 0, 0
    rows = sorted(zip(actual, predicted, strict=True))
    for _, group in groupby(rows, key=lambda row: row[0]):
        places = [bisect_left(ranks, value) for _, value in group]
        for place in places:
            less, equal = counts.below(place), counts.at(place)
            right += less + 0.5 * equal
        pairs += below * len(places)
        for place in places:
            counts.add(place)
        below += len(places)
    return right / pairs if pairs else nan


class _Counts:
    """Counts by place with prefix sums in O(log n): a Fenwick tree."""

    def __init__(self, places: int) -> None:
        self._tree = [0] * (places + 1)
        self._counts = [0] * places

    def add(self, place: int) -> None:
        self._counts[place] += 1
        at = place + 1
        while at < len(self._tree):
            self._tree[at] += 1
            at += at & -at

    def at(self, place: int) -> int:
        return self._counts[place]

    def below(self, place: int) -> int:
        total, at = 0, place
        while at:
            total += self._tree[at]
            at -= at & -at
        return total


def calibration(predicted: Sequence[float], actual: Sequence[float], bins: int = BINS) -> list[Bin]:
    """Return the calibration curve of probabilities, in bins of equal width.

    Of a calibrated predictor, the two means of each bin are equal but for chance. Empty bins are
    left out.
    """
    found: dict[int, list[tuple[float, float]]] = {}
    for p, a in zip(predicted, actual, strict=True):
        found.setdefault(min(bins - 1, int(p * bins)), []).append((p, a))
    return [
        Bin(len(rows), mean([p for p, _ in rows]), mean([a for _, a in rows]))
        for _, rows in sorted(found.items())
    ]


def calibration_of_numbers(
    predicted: Sequence[float], actual: Sequence[float], bins: int = BINS
) -> list[Bin]:
    """Return the calibration curve of means, in bins of about equally many predictions."""
    rows = sorted(zip(predicted, actual, strict=True))
    size = -(-len(rows) // max(1, min(bins, len(rows) // MIN_BIN_PAIRS))) or 1
    parts = [rows[first : first + size] for first in range(0, len(rows), size)]
    return [
        Bin(len(part), mean([p for p, _ in part]), mean([a for _, a in part])) for part in parts
    ]


def calibration_error(curve: Sequence[Bin]) -> float:
    """Return the mean of |predicted - actual| over a curve's bins by their counts; NaN if empty."""
    count = sum(each.count for each in curve)
    return sum(e.count * abs(e.predicted - e.actual) for e in curve) / count if count else nan
