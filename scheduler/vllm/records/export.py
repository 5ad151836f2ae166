"""Records on their way out of the engine: in vLLM's connector statistics, in order, unmerged.

In the API process listeners get them, and if `records` in `kv_connector_extra_config` names a file,
they become JSON lines.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from caesura.scheduler.records import PauseRecord, StepsRecord, parse

logger = logging.getLogger(__name__)

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


def tell(engine_idx: int, records: list[dict[str, Any]]) -> None:
    """Hand records to everybody who listens."""
    for key, callback in list(_LISTENERS.items()):
        try:
            callback(engine_idx, records)
        except Exception:
            if key not in _FAILED:
                _FAILED.add(key)
                logger.exception("a listener of the scheduler's records fails")


@dataclass
class RecordStats(KVConnectorStats):
    """Records of pauses and steps, oldest first, as plain data."""

    def reset(self) -> None:
        """Forget them."""
        self.data.clear()

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Append the records of another; anything else that may be there is left alone."""
        records = [*self.data.get("records", ()), *other.data.get("records", ())]
        return RecordStats(data={"records": records})

    def reduce(self) -> dict[str, int | float]:
        """Sum up for vLLM's log line."""
        records = [parse(entry) for entry in self.data.get("records", ())]
        steps = [record for record in records if isinstance(record, StepsRecord)]
        return {
            "pauses": sum(isinstance(record, PauseRecord) for record in records),
            "recomputed tokens": sum(sum(each.recompute_tokens) for each in steps),
            "blocks saved": sum(sum(each.saved_blocks) for each in steps),
            "blocks loaded": sum(sum(each.loaded_blocks) for each in steps),
        }

    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not self.data.get("records")


class RecordFile:
    """Writes records as JSON lines, until that fails."""

    def __init__(self, path: str | None) -> None:
        """`path`: the file, which is appended to; None writes nothing."""
        self._file = _open_records(path) if path else None

    def write(self, record: dict[str, Any]) -> None:
        """Write a record down at once."""
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
