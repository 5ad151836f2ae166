"""Real runs as they are kept in a file, so that they can be simulated again."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.handling.records import SegmentRecord, SessionRecord
from benchmarks.validate.real import RealRun
from benchmarks.validate.steps import Row
from caesura.scheduler.calibration import Calibration


def to_wire(run: RealRun) -> dict[str, Any]:
    """Return plain data; `from_wire` reads it back."""
    return asdict(run)


def from_wire(wire: Mapping[str, Any]) -> RealRun:
    """Read what `to_wire` wrote, be it from JSON."""
    values = dict(wire)
    values["calibration"] = Calibration.from_wire(wire["calibration"])
    values["rows"] = [Row(*row) for row in wire["rows"]]
    values["machine_load"] = tuple(wire["machine_load"])
    values["records"] = [_record(record) for record in wire["records"]]
    return RealRun(**values)


def _record(wire: Mapping[str, Any]) -> SessionRecord:
    segments = [SegmentRecord(**segment) for segment in wire["segments"]]
    return SessionRecord(**{**wire, "segments": segments})
