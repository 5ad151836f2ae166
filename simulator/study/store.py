"""Save runs in files: JSON in gzip, with sessions in columns and times to a microsecond."""

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from caesura.simulator.results import RunResult, SessionResult, Totals

FORM = 2
"""The version of the files' form; files of other versions are not read."""

DIGITS = 6
"""The number of decimals of seconds that are kept: microseconds."""

BROKEN = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError)
"""The exceptions that reading a truncated or garbled file can raise."""

PLAIN = (
    "key",
    "kind",
    "arrival",
    "decode_tokens",
    "tool_seconds",
    "ended",
    "preemptions",
    "cached_tokens",
    "loaded_tokens",
    "recomputed_tokens",
    "segment_tokens",
    "parent",
)
"""The columns of sessions that are stored unchanged; `segments` are flattened."""


def write_run(path: Path, digest: str, run: RunResult) -> None:
    """Write a run to a file, completely or not at all; raises `OSError`."""
    form = {
        **{name: getattr(run, name) for name in ("policy", "workload", "machine", "rate", "seed")},
        "form": FORM,
        "digest": digest,
        "sessions": _columns(run.sessions),
        "totals": asdict(run.totals),
        "timeline": {name: _rounded(column) for name, column in run.timeline.items()},
        "records": run.records,
        "settings": run.settings,
        "wall_seconds": round(run.wall_seconds, DIGITS),
        "predictions": run.predictions,
        "replicas": run.replicas,
        "load_variation": run.load_variation,
    }
    text = json.dumps(form, separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is fixed, so that the next attempt overwrites the remains of a killed process.
    half = path.with_name(f"{path.name}.part")
    # Without a time stamp, the same run gives the same bytes.
    half.write_bytes(gzip.compress(text.encode(), compresslevel=6, mtime=0))
    half.replace(path)


def read_run(path: Path, digest: str) -> RunResult | None:
    """Return the run in a file; None if it is missing, broken, or has another digest."""
    try:
        form = json.loads(gzip.decompress(path.read_bytes()))
        if form["form"] != FORM or form["digest"] != digest:
            return None
        return _run(form)
    except BROKEN:
        return None


def _run(form: dict[str, Any]) -> RunResult:
    return RunResult(
        policy=form["policy"],
        workload=form["workload"],
        machine=form["machine"],
        rate=form["rate"],
        seed=form["seed"],
        sessions=_sessions(form["sessions"]),
        totals=Totals(**form["totals"]),
        timeline=form["timeline"],
        records=form["records"],
        settings=form["settings"],
        wall_seconds=form["wall_seconds"],
        predictions=form.get("predictions", []),
        replicas=form.get("replicas", []),
        load_variation=form.get("load_variation", 0.0),
    )


def _columns(sessions: Iterable[SessionResult]) -> dict[str, list[Any]]:
    rows = list(sessions)
    columns: dict[str, list[Any]] = {
        name: _rounded(getattr(row, name) for row in rows) for name in PLAIN
    }
    columns["segments"] = [
        _rounded(moment for segment in row.segments for moment in segment) for row in rows
    ]
    return columns


def _sessions(columns: dict[str, list[Any]]) -> list[SessionResult]:
    segments = columns["segments"]
    rows = zip(*(columns[name] for name in PLAIN), strict=True)
    return [
        SessionResult(
            **dict(zip(PLAIN, row, strict=True)),
            segments=list(zip(flat[::3], flat[1::3], flat[2::3], strict=True)),
        )
        for row, flat in zip(rows, segments, strict=True)
    ]


def _rounded(values: Iterable[Any]) -> list[Any]:
    return [round(value, DIGITS) if isinstance(value, float) else value for value in values]
