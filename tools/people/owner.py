"""Owners of items: which process an item belongs to, and whether that process is alive."""

import itertools
import os
from pathlib import Path

_NUMBERS = itertools.count(1)


def new_owner() -> str:
    """Return a unique name for one user of the file, which contains its process id."""
    return f"{os.getpid()}-{_started(os.getpid())}-{next(_NUMBERS)}"


def is_alive(owner: str) -> bool:
    """Return whether the owner's process runs; a later process of the same id does not count."""
    pid, _, rest = owner.partition("-")
    started = rest.partition("-")[0]
    return pid.isdecimal() and _started(int(pid)) == started


def _started(pid: int) -> str:
    """Return a process's start time in kernel ticks; without /proc, whether it runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone" if Path("/proc/self").exists() else _answers(pid)
    # The second field, in parentheses, is the program's name and may contain any character.
    state, *after = fields.rpartition(")")[2].split()
    return "gone" if state in "ZX" else after[18]


def _answers(pid: int) -> str:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        pass
    return "running"
