"""Where measurements and observations are kept between runs: in the user's own directories.

As the XDG base directory specification has it, so that `XDG_CACHE_HOME` and `XDG_STATE_HOME` move
them.
"""

import os
import re
from pathlib import Path


def calibration_directory() -> Path:
    """Return where calibrations are looked for."""
    return _base("XDG_CACHE_HOME", ".cache") / "calibration"


def calibration_path(model: str, dtype: str, device: str, vllm_version: str) -> Path:
    """Return where the calibration of an engine is kept; `vllm_version` makes no other file."""
    name = "-".join(map(_slug, (model, dtype, device)))
    return calibration_directory() / f"{name}.json"


def pauses_path() -> Path:
    """Return where what was observed of tools' pauses is kept."""
    return _base("XDG_STATE_HOME", ".local/state") / "pauses.json"


def traces_path() -> Path:
    """Return where traces are recorded unless they are to go elsewhere."""
    return _base("XDG_STATE_HOME", ".local/state") / "traces.sqlite"


def _base(variable: str, default: str) -> Path:
    # A path that is not absolute is to be ignored, says the specification.
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / default) / "caesura"


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")
