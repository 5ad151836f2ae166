"""Prometheus metrics `caesura_kv_*`, computed from the engine's records as they arrive."""

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics

from caesura.scheduler.records import PauseRecord, RestRecord, StepsRecord, parse
from caesura.scheduler.vllm.records.export import RecordFile, tell
from caesura.scheduler.vllm.records.prediction_metrics import PredictionMetrics

SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)

_METRICS: dict[tuple[Any, str, tuple[str, ...]], Any] = {}


class SwapMetrics(KVConnectorPromMetrics):
    """Updates Prometheus metrics from the scheduler's records, and writes them as JSON lines."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._labels = per_engine_labelvalues
        names = list(labelnames)
        self._pauses = self._metric(
            self._counter_cls,
            name="caesura_kv_pauses",
            documentation="Pauses that have ended, by what happened to their KV cache.",
            labelnames=[*names, "handling"],
        )
        self._regret = self._metric(
            self._counter_cls,
            name="caesura_kv_regret_block_seconds",
            documentation="Block-seconds that pauses cost beyond the best handling in"
            " hindsight, where others wanted their memory.",
            labelnames=names,
        )
        self._pause_seconds = self._metric(
            self._histogram_cls,
            name="caesura_kv_pause_seconds",
            documentation="How long pauses lasted in the engine.",
            buckets=SECONDS,
            labelnames=names,
        )
        self._tokens = self._metric(
            self._counter_cls,
            name="caesura_kv_step_tokens",
            documentation="Query tokens of steps, by what they were for.",
            labelnames=[*names, "purpose"],
        )
        self._copied = self._metric(
            self._counter_cls,
            name="caesura_kv_copied_blocks",
            documentation="Blocks ordered to be copied to the host (out) and back (in).",
            labelnames=[*names, "direction"],
        )
        self._blocks = self._metric(
            self._gauge_cls,
            name="caesura_kv_blocks",
            documentation="Blocks of KV cache, by owner.",
            labelnames=[*names, "owner"],
        )
        kinds = (self._counter_cls, self._gauge_cls)
        self._predictions = PredictionMetrics(self._metric, *kinds, labelnames)
        self._file = RecordFile(self._kv_transfer_config.kv_connector_extra_config.get("records"))

    def _metric(self, kind: Any, name: str, **about: Any) -> Any:
        """Return the metric, created once per process: a process may start several engines."""
        key = (kind, name, tuple(about["labelnames"]))
        if key not in _METRICS:
            _METRICS[key] = kind(name=name, **about)
        return _METRICS[key]

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Update the metrics from an engine's records, and write the records to the file."""
        labels = self._labels[engine_idx]
        records = transfer_stats_data.get("records", ())
        if records:
            tell(engine_idx, list(records))
        for entry in records:
            match record := parse(entry):
                case PauseRecord() as pause:
                    self._pauses.labels(*labels, pause.handling).inc()
                    self._regret.labels(*labels).inc(pause.regret or 0.0)
                    self._pause_seconds.labels(*labels).observe(pause.pause_seconds or 0.0)
                case StepsRecord() as steps:
                    self._count_steps(steps, labels)
                case RestRecord() as rest:
                    owners = (rest.running_blocks, rest.paused_blocks, rest.free_blocks)
                    self._set_blocks(owners, labels)
            self._predictions.take(engine_idx, record)
            self._file.write({"engine": engine_idx, **entry})
        self._predictions.work(self._labels)

    def _count_steps(self, steps: StepsRecord, labels: list[object]) -> None:
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

    def _set_blocks(self, blocks: Sequence[float], labels: list[object]) -> None:
        for owner, count in zip(("running", "paused", "free"), blocks, strict=True):
            self._blocks.labels(*labels, owner).set(count)
