"""Owners of items in shared files: which process an item belongs to, and whether it is alive.

A process that shares our process ids is looked up. Any other one, in another container or on
another machine, holds a lease in the file, which it renews while it lives.
"""

import hashlib
import itertools
import os
import socket
import sqlite3
from functools import cache
from pathlib import Path

LEASE_SECONDS = 30.0
"""How long an owner counts as alive after it has renewed its lease."""
RENEW_SECONDS = 10.0
"""How often a living owner renews its lease."""
SCHEMA = "CREATE TABLE IF NOT EXISTS leases (owner TEXT PRIMARY KEY, until REAL)"
"""The table of leases; `until` is a Unix time."""

_NUMBERS = itertools.count(1)


def new_owner() -> str:
    """Return a unique name for one user of the file, which tells its process and its place."""
    return f"{os.getpid()}-{_started(os.getpid())}-{next(_NUMBERS)}@{place()}"


def is_alive(owner: str) -> bool:
    """Return whether the owner's process runs; a later process of the same id does not count.

    The answer is right for owners that are here (`is_here`).
    """
    pid, _, rest = owner.partition("-")
    started = rest.partition("-")[0]
    return pid.isdecimal() and _started(int(pid)) == started


def is_here(owner: str) -> bool:
    """Return whether the owner's process can be looked up by its id.

    That is so in the same boot of the same machine and the same container. Names of older files
    tell no place; they count as here.
    """
    name, at, where = owner.partition("@")
    return where == place() if at else name.partition("-")[0].isdecimal()


@cache
def place() -> str:
    """Return a digest of the machine, its boot, and the namespace of process ids."""
    told = [socket.gethostname(), _read("/proc/sys/kernel/random/boot_id")]
    try:
        told.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        told.append("")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


# -- leases, in any SQLite file with the table `leases` -------------------------------------------


def renew(db: sqlite3.Connection, owner: str, now: float, seconds: float = LEASE_SECONDS) -> None:
    """Let the owner count as alive until `now` + `seconds`."""
    db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (owner, now + seconds))


def end_lease(db: sqlite3.Connection, owner: str) -> None:
    """Let the owner count as gone from now on."""
    db.execute("INSERT OR REPLACE INTO leases VALUES (?, -1)", (owner,))


def is_gone(db: sqlite3.Connection, owner: str, now: float) -> bool:
    """Return whether the owner has ended, or has not renewed its lease in time."""
    row = db.execute("SELECT until FROM leases WHERE owner = ?", (owner,)).fetchone()
    if row is not None and row[0] < 0:
        return True
    if is_here(owner):
        return not is_alive(owner)
    return row is None or row[0] <= now


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
