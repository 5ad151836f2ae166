"""The environment variables that a worker inherits: no keys, tokens or addresses."""

import os
from collections.abc import Mapping

_NAMES = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"})
_PREFIXES = ("LC_", "PYTHON", "XDG_")


def worker_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for paths and language, one thread for OpenMP, and `added`."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _NAMES or name.startswith(_PREFIXES)
    }
    return {**passed, "OMP_NUM_THREADS": "1", **(added or {})}
