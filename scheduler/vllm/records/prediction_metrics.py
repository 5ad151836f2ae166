"""Prometheus metrics `caesura_prediction_*`: how good predictions are while the engine serves.

They are updated in the event loop of the API process. A long session completes hundreds of pairs at
its end, so that only `MAX_PAIRS` of them are counted at a time, and the others with later records.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from caesura.scheduler.accuracy.outcomes import CHANCES, Outcome, Outcomes
from caesura.scheduler.accuracy.window import ChanceWindow
from caesura.scheduler.records import ForecastRecord, PauseRecord, Record, SessionRecord

MAX_PAIRS = 200
"""The most pairs that are counted at a time."""

MAX_WAITING = 10_000
"""The most records that wait to be compared; the oldest are dropped."""

COMPARED = (ForecastRecord, PauseRecord, SessionRecord)

Key = tuple[int, str, str]
"""The engine, the predictor and the quantity."""


class PredictionMetrics:
    """Compares forecasts with what came, and counts the errors by predictor and quantity."""

    def __init__(
        self, metric: Callable[..., Any], counter: Any, gauge: Any, labelnames: Sequence[str]
    ) -> None:
        """Create it; `metric` makes a metric of the class `counter` or `gauge`."""
        names = [*labelnames, "predictor", "quantity"]

        def counted(name: str, about: str) -> Any:
            return metric(counter, name=name, documentation=about, labelnames=names)

        self._pairs = counted(
            "caesura_prediction_pairs", "Predictions that were compared with what came."
        )
        self._error = counted(
            "caesura_prediction_absolute_error",
            "Sum of absolute errors: tokens, calls, seconds, or probability.",
        )
        self._predicted = counted("caesura_prediction_predicted", "Sum of what was predicted.")
        self._actual = counted("caesura_prediction_actual", "Sum of what came.")
        self._auc = metric(
            gauge,
            name="caesura_prediction_auc",
            documentation="Area under the ROC curve of the last 1000 predicted probabilities.",
            labelnames=names,
        )
        self._away = metric(
            gauge,
            name="caesura_prediction_calibration_error",
            documentation="Mean distance of the last 1000 probabilities from what came.",
            labelnames=names,
        )
        self._engines: dict[int, Outcomes] = {}
        self._waiting: deque[tuple[int, Record]] = deque(maxlen=MAX_WAITING)
        self._current: tuple[int, Iterator[Outcome]] | None = None
        self._windows: dict[Key, ChanceWindow] = {}

    def take(self, engine: int, record: Record | None) -> None:
        """Take an engine's next record, to compare it in `work`; other kinds are ignored."""
        if isinstance(record, COMPARED):
            self._waiting.append((engine, record))

    def work(self, labels: Mapping[int, Sequence[object]]) -> None:
        """Count up to `MAX_PAIRS` pairs of the taken records; `labels` are those of each engine."""
        sums: dict[Key, list[float]] = {}
        for engine, each in self._next(MAX_PAIRS):
            key = engine, each.predictor, each.quantity
            row = sums.setdefault(key, [0.0] * 4)
            row[0] += 1
            row[1] += abs(each.predicted - each.actual)
            row[2] += each.predicted
            row[3] += each.actual
            if each.quantity in CHANCES:
                window = self._windows.setdefault(key, ChanceWindow())
                window.add(each.predicted, each.actual)
        counters = (self._pairs, self._error, self._predicted, self._actual)
        for key, row in sums.items():
            values = (*labels[key[0]], *key[1:])
            for counter, total in zip(counters, row, strict=True):
                counter.labels(*values).inc(total)
            self._show(key, values)

    def _show(self, key: Key, values: Sequence[object]) -> None:
        """Set the gauges of a probability; an AUC that is not defined is not shown."""
        window = self._windows.get(key)
        if window is None:
            return
        self._away.labels(*values).set(window.calibration_error)
        if isfinite(auc := window.auc):
            self._auc.labels(*values).set(auc)

    def _next(self, most: int) -> Iterator[tuple[int, Outcome]]:
        """Yield up to `most` pairs, each with its engine."""
        while most > 0:
            if self._current is None:
                if not self._waiting:
                    return
                engine, record = self._waiting.popleft()
                outcomes = self._engines.setdefault(engine, Outcomes())
                self._current = engine, outcomes.compare(record)
            engine, pairs = self._current
            found = next(pairs, None)
            if found is None:
                self._current = None
            else:
                most -= 1
                yield engine, found
