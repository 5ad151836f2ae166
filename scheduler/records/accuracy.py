"""How good predictions were: measures, tables over all time, and a window of the last ones."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, isfinite, nan
from typing import Any

from caesura.scheduler.records.outcomes import CHANCES, QUANTITIES, Outcome

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


WINDOW = 1000
"""The number of last pairs that a window holds."""

WINDOW_BINS = 20
"""Bins of probabilities, from which the window's AUC and calibration error are computed."""


class ChanceWindow:
    """The last pairs of one probability, counted in bins of equal width."""

    def __init__(self, size: int = WINDOW) -> None:
        """Raise `ValueError` for a size below 1."""
        if size < 1:
            raise ValueError(f"a window must hold at least 1 pair, got {size!r}")
        self._size = size
        self._rows: deque[tuple[int, float, float]] = deque()
        self._counts = [
            [0, 0] for _ in range(WINDOW_BINS)
        ]  # [bin]: events that did not come, that came
        self._predicted = [0.0] * WINDOW_BINS

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, predicted: float, actual: float) -> None:
        """Add a probability, and whether the event came (1.0 or 0.0)."""
        place = max(0, min(WINDOW_BINS - 1, int(predicted * WINDOW_BINS)))
        self._rows.append((place, predicted, actual))
        self._count(place, predicted, actual, 1)
        if len(self._rows) > self._size:
            self._count(*self._rows.popleft(), -1)

    def _count(self, place: int, predicted: float, actual: float, sign: int) -> None:
        self._counts[place][actual > 0.5] += sign
        self._predicted[place] += sign * predicted

    @property
    def auc(self) -> float:
        """Return the area under the ROC curve; pairs in one bin count as half. NaN if undefined."""
        right, missed_below = 0.0, 0
        for missed, came in self._counts:
            right += came * (missed_below + 0.5 * missed)
            missed_below += missed
        pairs = missed_below * sum(came for _, came in self._counts)
        return right / pairs if pairs else nan

    @property
    def calibration_error(self) -> float:
        """Return the mean distance of probabilities from shares, over bins; NaN if empty."""
        if not self._rows:
            return nan
        away = (abs(p - came) for p, (_, came) in zip(self._predicted, self._counts, strict=True))
        return sum(away) / len(self._rows)


SPANS = 6
"""Spans of time over which an error is followed; each has as many predictions."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good a predictor was at one quantity.

    `predicted` and `actual` are means. `error` is the mean absolute error, or the Brier score of a
    probability. `pair_accuracy` is the share of pairs in the right order (for a probability, the
    AUC). `curve` is the calibration curve, and `calibration_error` its mean distance from the
    diagonal. `covered` is the share between the predicted 10 and 90 % quantiles, or None.
    `errors` has the error of each of `SPANS` spans, from the first predictions to the last.
    """

    quantity: str
    predictor: str
    count: int
    predicted: float
    actual: float
    error: float
    pair_accuracy: float
    calibration_error: float
    covered: float | None
    errors: tuple[float, ...]
    curve: tuple[Bin, ...]

    def public(self) -> dict[str, Any]:
        """Return plain data for JSON, with None for what is not known."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "curve"}
        told = {name: _finite(value) for name, value in plain.items()}
        told["errors"] = [_finite(each) for each in self.errors]
        told["curve"] = [[each.count, each.predicted, each.actual] for each in self.curve]
        return told


def accuracies(outcomes: Iterable[Outcome]) -> list[Accuracy]:
    """Return the accuracy of each predictor by quantity, in the order of `QUANTITIES`."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for each in outcomes:
        found.setdefault((each.quantity, each.predictor), []).append(each)
    made = [_accuracy(*key, rows) for key, rows in found.items()]
    return sorted(made, key=lambda each: (QUANTITIES.index(each.quantity), each.predictor))


def _accuracy(quantity: str, predictor: str, rows: list[Outcome]) -> Accuracy:
    rows.sort(key=lambda row: (row.at, row.session, row.calls))
    predicted, actual = [row.predicted for row in rows], [row.actual for row in rows]
    chance = quantity in CHANCES
    error = brier_score if chance else mean_absolute_error
    curve = (calibration if chance else calibration_of_numbers)(predicted, actual)
    size = -(-len(rows) // SPANS)
    cuts = range(0, len(rows), size)
    return Accuracy(
        quantity=quantity,
        predictor=predictor,
        count=len(rows),
        predicted=mean(predicted),
        actual=mean(actual),
        error=error(predicted, actual),
        pair_accuracy=pair_accuracy(predicted, actual),
        calibration_error=calibration_error(curve),
        covered=_covered(rows),
        errors=tuple(error(predicted[cut : cut + size], actual[cut : cut + size]) for cut in cuts),
        curve=tuple(curve),
    )


def _covered(rows: Sequence[Outcome]) -> float | None:
    ranges = [(row.low, row.actual, row.high) for row in rows if row.low is not None]
    if not ranges:
        return None
    within = [low <= actual <= (inf if high is None else high) for low, actual, high in ranges]
    return sum(within) / len(within)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not isfinite(value) else value
