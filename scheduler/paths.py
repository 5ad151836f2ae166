"""Paths of the files that keep measurements and observations between runs.

They follow the XDG base directory specification, so that `XDG_CACHE_HOME` and `XDG_STATE_HOME`
move them.
"""

import os
import re
from pathlib import Path


def calibration_directory() -> Path:
    """Return the directory of calibrations."""
    return _base("XDG_CACHE_HOME", ".cache") / "calibration"


def calibration_path(model: str, dtype: str, device: str, vllm_version: str) -> Path:
    """Return the file of an engine's calibration; all vLLM versions share one file."""
    name = "-".join(map(_slug, (model, dtype, device)))
    return calibration_directory() / f"{name}.json"


def pauses_path() -> Path:
    """Return the file of the observed pauses of tools."""
    return _base("XDG_STATE_HOME", ".local/state") / "pauses.json"


def traces_path() -> Path:
    """Return the default file of traces."""
    return _base("XDG_STATE_HOME", ".local/state") / "traces.sqlite"


def responses_path() -> Path:
    """Return the default file of stored responses and conversations."""
    return _base("XDG_STATE_HOME", ".local/state") / "responses.sqlite"


def audit_path() -> Path:
    """Return the default file of the audit log."""
    return _base("XDG_STATE_HOME", ".local/state") / "audit.jsonl"


def control_secret_path() -> Path:
    """Return the file of the secret of control messages, for engines that others start."""
    return _base("XDG_STATE_HOME", ".local/state") / "control.secret"


def journal_path() -> Path:
    """Return the default file of journals."""
    return _base("XDG_STATE_HOME", ".local/state") / "journal.sqlite"


def _base(variable: str, default: str) -> Path:
    # The specification says to ignore a path that is not absolute.
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / default) / "caesura"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")
