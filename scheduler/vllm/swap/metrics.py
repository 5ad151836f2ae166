"""The engine's records on their way out: through vLLM's connector statistics, in order, unmerged.

They arrive in the API process, where they become Prometheus metrics under `caesura_kv_*` and, if
`records` in `kv_connector_extra_config` names a file, JSON lines. Whoever listens gets them too.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

logger = logging.getLogger(__name__)

SECONDS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)

_METRICS: dict[tuple[Any, str, tuple[str, ...]], Any] = {}

Listener = Callable[[int, list[dict[str, Any]]], None]
"""Is handed the data-parallel rank of the engine, and its records, oldest first."""

_LISTENERS: dict[object, Listener] = {}

_FAILED: set[object] = set()


def listen(callback: Listener) -> Callable[[], None]:
    """Have a callable receive the records of every engine of this process; return how to stop.

    It is called in the thread in which vLLM logs its statistics, which is the event loop's in a
    server: it must not block, and must not change what it is handed. What it raises is logged
    once, and ignored.
    """
    key = object()
    _LISTENERS[key] = callback

    def stop() -> None:
        _LISTENERS.pop(key, None)
        _FAILED.discard(key)

    return stop


def _tell(engine_idx: int, records: list[dict[str, Any]]) -> None:
    """Hand records to everybody who listens."""
    for key, callback in list(_LISTENERS.items()):
        try:
            callback(engine_idx, records)
        except Exception:
            if key not in _FAILED:
                _FAILED.add(key)
                logger.exception("a listener of the scheduler's records fails")


@dataclass
class SwapStats(KVConnectorStats):
    """Records of pauses and steps, oldest first, as plain data."""

    def reset(self) -> None:
        """Forget them."""
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Append the records of another; anything else that may be there is left alone."""
        records = [*self.data.get("records", ()), *other.data.get("records", ())]
        return SwapStats(data={"records": records})

    def reduce(self) -> dict[str, int | float]:
        """Sum up for vLLM's log line."""
        steps = [record for record in self.data.get("records", ()) if record["kind"] == "steps"]
        pauses = [record for record in self.data.get("records", ()) if record["kind"] == "pause"]
        return {
            "pauses": len(pauses),
            "recomputed tokens": sum(sum(record["recompute_tokens"]) for record in steps),
            "blocks saved": sum(sum(record["saved_blocks"]) for record in steps),
            "blocks loaded": sum(sum(record["loaded_blocks"]) for record in steps),
        }

    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.data.get("records")


class SwapMetrics(KVConnectorPromMetrics):
    """Prometheus metrics of the scheduler's records, and their JSON lines."""

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
            documentation="Block-seconds that pauses cost beyond the best handling in hindsight.",
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
        self._file = _open_records(self._kv_transfer_config)

    def _metric(self, kind: Any, name: str, **about: Any) -> Any:
        """Make a metric once per process: an engine may be started after another has ended."""
        key = (kind, name, tuple(about["labelnames"]))
        if key not in _METRICS:
            _METRICS[key] = kind(name=name, **about)
        return _METRICS[key]

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Count records and write them down."""
        labels = self._labels[engine_idx]
        records = transfer_stats_data.get("records", ())
        if records:
            _tell(engine_idx, list(records))
        for record in records:
            if record["kind"] == "pause":
                self._pauses.labels(*labels, record["handling"]).inc()
                self._regret.labels(*labels).inc(record["regret"])
                self._pause_seconds.labels(*labels).observe(record["pause_seconds"])
            elif record["kind"] == "steps":
                for purpose in ("decode", "prefill", "recompute"):
                    tokens = sum(record[f"{purpose}_tokens"])
                    self._tokens.labels(*labels, purpose).inc(tokens)
                self._copied.labels(*labels, "out").inc(sum(record["saved_blocks"]))
                self._copied.labels(*labels, "in").inc(sum(record["loaded_blocks"]))
                for owner in ("running", "paused", "free"):
                    self._blocks.labels(*labels, owner).set(record[f"{owner}_blocks"][-1])
            self._write({"engine": engine_idx, **record})

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            logger.warning("records are no longer written to %s: %s", self._file.name, error)
            self._file = None


def _open_records(kv_transfer_config: Any) -> TextIO | None:
    path = kv_transfer_config.kv_connector_extra_config.get("records")
    if not path:
        return None
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        logger.warning("records cannot be written to %s: %s", path, error)
        return None
