"""Tables of accuracy: a row for each quantity and predictor, over all time or by spans of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from caesura.scheduler.accuracy.measures import (
    Bin,
    brier_score,
    calibration,
    calibration_error,
    calibration_of_numbers,
    mean,
    mean_absolute_error,
    pair_accuracy,
)
from caesura.scheduler.accuracy.outcomes import CHANCES, QUANTITIES, Outcome

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
