"""Prometheus metrics `caesura_kv_*` and `caesura_prediction_*`, computed from the records.

They are updated in the event loop of the API process. A long session completes hundreds of pairs of
a prediction and what came at its end. Only `MAX_PAIRS` of them are counted at a time, and the
others with later records.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from caesura.scheduler.records import (
    ForecastRecord,
    PauseRecord,
    Record,
    RestRecord,
    SessionRecord,
    StepsRecord,
)
from caesura.scheduler.records.accuracy import ChanceWindow
from caesura.scheduler.records.outcomes import CHANCES, Outcome, Outcomes

SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
"""The buckets of the durations of pauses."""

MakeMetric = Callable[..., Any]
"""Makes a metric of a class of `prometheus_client`, once for each process and name."""


class KVMetrics:
    """Counts pauses, tokens of steps, copies and blocks."""

    def __init__(
        self,
        metric: MakeMetric,
        counter: Any,
        gauge: Any,
        histogram: Any,
        labelnames: Sequence[str],
    ) -> None:
        """Create it; `metric` makes a metric of the class `counter`, `gauge` or `histogram`."""
        self._pauses = metric(
            counter,
            name="caesura_kv_pauses",
            documentation="Pauses that have ended, by what happened to their KV cache.",
            labelnames=[*labelnames, "handling"],
        )
        self._released = metric(
            counter,
            name="caesura_kv_released_blocks",
            documentation="Blocks of KV cache that paused requests gave up, by reason.",
            labelnames=[*labelnames, "why"],
        )
        self._regret = metric(
            counter,
            name="caesura_kv_regret_block_seconds",
            documentation="Block-seconds that pauses cost beyond the best handling in"
            " hindsight, where others wanted their memory.",
            labelnames=list(labelnames),
        )
        self._pause_seconds = metric(
            histogram,
            name="caesura_kv_pause_seconds",
            documentation="How long pauses lasted in the engine.",
            buckets=SECONDS,
            labelnames=list(labelnames),
        )
        self._tokens = metric(
            counter,
            name="caesura_kv_step_tokens",
            documentation="Query tokens of steps, by what they were for.",
            labelnames=[*labelnames, "purpose"],
        )
        self._copied = metric(
            counter,
            name="caesura_kv_copied_blocks",
            documentation="Blocks ordered to be copied to the host (out) and back (in).",
            labelnames=[*labelnames, "direction"],
        )
        self._blocks = metric(
            gauge,
            name="caesura_kv_blocks",
            documentation="Blocks of KV cache, by owner.",
            labelnames=[*labelnames, "owner"],
        )

    def take(self, record: Record | None, labels: Sequence[object]) -> None:
        """Count a record of the engine with these labels; other kinds are ignored."""
        match record:
            case PauseRecord() as pause:
                self._pauses.labels(*labels, pause.handling).inc()
                self._regret.labels(*labels).inc(pause.regret or 0.0)
                self._pause_seconds.labels(*labels).observe(pause.pause_seconds or 0.0)
                for release in pause.decisions:
                    self._released.labels(*labels, release.why).inc(release.blocks)
            case StepsRecord() as steps:
                self._count_steps(steps, labels)
            case RestRecord() as rest:
                owners = (rest.running_blocks, rest.paused_blocks, rest.free_blocks)
                self._set_blocks(owners, labels)

    def _count_steps(self, steps: StepsRecord, labels: Sequence[object]) -> None:
        tokens = {
            "decode": steps.decode_tokens,
            "prefill": steps.prefill_tokens,
            "recompute": steps.recompute_tokens,
        }
        for purpose, column in tokens.items():
            self._tokens.labels(*labels, purpose).inc(sum(column))
        self._copied.labels(*labels, "out").inc(sum(steps.saved_blocks))
        self._copied.labels(*labels, "in").inc(sum(steps.loaded_blocks))
        owners = (steps.running_blocks, steps.paused_blocks, steps.free_blocks)
        self._set_blocks([column[-1] for column in owners], labels)

    def _set_blocks(self, blocks: Sequence[float], labels: Sequence[object]) -> None:
        for owner, count in zip(("running", "paused", "free"), blocks, strict=True):
            self._blocks.labels(*labels, owner).set(count)


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
        self, metric: MakeMetric, counter: Any, gauge: Any, labelnames: Sequence[str]
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
