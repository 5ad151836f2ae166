"""Default directories of tools: the user's own, by the XDG base directory specification.

`XDG_DATA_HOME` and `XDG_CONFIG_HOME` move them.
"""

import os
from pathlib import Path


def default_data() -> Path:
    """Return the directory of files that tools keep over restarts."""
    return _base("XDG_DATA_HOME", ".local/share")


def default_artifacts() -> Path:
    """Return the directory of files that tools make."""
    return default_data() / "artifacts"


def user_configuration() -> Path:
    """Return the configuration file for all projects of the user."""
    return _base("XDG_CONFIG_HOME", ".config") / "caesura.toml"


def _base(variable: str, default: str) -> Path:
    # The specification says to ignore a path that is not absolute.
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / default) / "caesura"
