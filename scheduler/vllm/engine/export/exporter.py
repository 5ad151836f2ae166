"""The exporter: the way of all records out of the engine, in their order.

They leave the engine's process as vLLM's statistics of a connector. In the API process, listeners
receive them, and Prometheus metrics are computed from them. If `records` in
`kv_connector_extra_config` names a file, they are also written to it as JSON lines.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from caesura.scheduler.records import PauseRecord, StepsRecord, parse
from caesura.scheduler.vllm.engine.export.metrics import KVMetrics, PredictionMetrics

logger = logging.getLogger(__name__)

Listener = Callable[[int, list[dict[str, Any]]], None]
"""Callback that receives the engine's data-parallel rank and its records, oldest first."""


class Listeners:
    """Those who receive the records of one engine."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._failed: set[object] = set()

    def listen(self, callback: Listener) -> Callable[[], None]:
        """Call `callback` with the engine's records; return a function that stops it.

        The callback runs in the thread in which vLLM logs its statistics, in a server that of the
        event loop. So it must not block, and it must not change the records. The first error that
        it raises is logged, and all are ignored.
        """
        key = object()
        self._listeners[key] = callback

        def stop() -> None:
            self._listeners.pop(key, None)
            self._failed.discard(key)

        return stop

    def tell(self, engine_idx: int, records: list[dict[str, Any]]) -> None:
        """Pass records to all listeners."""
        for key, callback in list(self._listeners.items()):
            try:
                callback(engine_idx, records)
            except Exception:
                if key not in self._failed:
                    self._failed.add(key)
                    logger.exception(
                        "a listener of the scheduler's records failed; it stays attached"
                    )


_LISTENERS: dict[str, Listeners] = {}


def listeners_of(vllm_config: VllmConfig) -> Listeners:
    """Return the listeners of an engine, which stay when it is started again.

    vLLM makes the exporter itself, so the two find each other by the id of the configuration.
    """
    return _LISTENERS.setdefault(vllm_config.instance_id, Listeners())


@dataclass
class RecordStats(KVConnectorStats):
    """Records of pauses and steps, oldest first, as plain data."""

    def reset(self) -> None:
        """Remove all records."""
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Return both objects' records, those of `other` last."""
        records = [*self.data.get("records", ()), *other.data.get("records", ())]
        return RecordStats(data={"records": records})

    def reduce(self) -> dict[str, int | float]:
        """Return the sums for vLLM's log line."""
        records = [parse(entry) for entry in self.data.get("records", ())]
        steps = [record for record in records if isinstance(record, StepsRecord)]
        return {
            "pauses": sum(isinstance(record, PauseRecord) for record in records),
            "recomputed tokens": sum(sum(each.recompute_tokens) for each in steps),
            "blocks saved": sum(sum(each.saved_blocks) for each in steps),
            "blocks loaded": sum(sum(each.loaded_blocks) for each in steps),
        }

    def is_empty(self) -> bool:
        """Return whether there are no records to send."""
        return not self.data.get("records")


class RecordFile:
    """Writes records as JSON lines, until a write fails."""

    def __init__(self, path: str | None) -> None:
        """Open the file `path` for appending; None writes nothing."""
        self._file = _open_records(path) if path else None

    def write(self, record: dict[str, Any]) -> None:
        """Write a record, and flush the file."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            logger.warning("records are no longer written to %s: %s", self._file.name, error)
            self._file = None


def _open_records(path: str) -> TextIO | None:
    try:
        return Path(path).open("a", encoding="utf-8")
    except OSError as error:
        logger.warning("records cannot be written to %s: %s", path, error)
        return None


_METRICS: dict[tuple[Any, str, tuple[str, ...]], Any] = {}


class RecordExporter(KVConnectorPromMetrics):
    """Passes on the records of every engine: to listeners, to Prometheus metrics, and to a file.

    vLLM gives a connector's statistics to such an object only, one in each API process.
    """

    def __init__(
        self,
        vllm_config: Any,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._labels = per_engine_labelvalues
        self._listeners = listeners_of(vllm_config)
        kinds = (self._counter_cls, self._gauge_cls)
        self._kv = KVMetrics(self._metric, *kinds, self._histogram_cls, labelnames)
        self._predictions = PredictionMetrics(self._metric, *kinds, labelnames)
        self._file = RecordFile(self._kv_transfer_config.kv_connector_extra_config.get("records"))

    def _metric(self, kind: Any, name: str, **about: Any) -> Any:
        """Return the metric, created once per process: a process may start several engines."""
        key = (kind, name, tuple(about["labelnames"]))
        if key not in _METRICS:
            _METRICS[key] = kind(name=name, **about)
        return _METRICS[key]

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Pass on an engine's records."""
        records = transfer_stats_data.get("records", ())
        if records:
            self._listeners.tell(engine_idx, list(records))
        for entry in records:
            record = parse(entry)
            self._kv.take(record, self._labels[engine_idx])
            self._predictions.take(engine_idx, record)
            self._file.write({"engine": engine_idx, **entry})
        self._predictions.work(self._labels)
