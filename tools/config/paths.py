"""Where tools keep files unless they are told otherwise: in the user's own directories.

As the XDG base directory specification has it, so that `XDG_DATA_HOME` and `XDG_CONFIG_HOME` move
them.
"""

import os
from pathlib import Path


def default_data() -> Path:
    """What tools keep over restarts."""
    return _base("XDG_DATA_HOME", ".local/share")


def default_artifacts() -> Path:
    """The files that tools make."""
    return default_data() / "artifacts"


def user_configuration() -> Path:
    """The configuration of all the user's projects."""
    return _base("XDG_CONFIG_HOME", ".config") / "caesura.toml"


def _base(variable: str, default: str) -> Path:
    # A path that is not absolute is to be ignored, says the specification.
    given = Path(os.environ.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / default) / "caesura"
