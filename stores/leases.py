"""Owners of what lies in shared stores: whose an item is, and whether that process is alive.

A process that shares our process ids is looked up. Any other one, in another container or on
another machine, holds a lease in the store, which it renews while it lives.
"""

import hashlib
import itertools
import os
import socket
import sqlite3
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from caesura.stores.postgres import Connection

LEASE_SECONDS = 30.0
"""How long an owner counts as alive after it has renewed its lease."""
RENEW_SECONDS = 10.0
"""How often a living owner renews its lease."""

_NUMBERS = itertools.count(1)


def new_owner() -> str:
    """Return a unique name for one user of a store, which tells its process and its place."""
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


class Leases(ABC):
    """The leases in one database, over a connection to it."""

    @abstractmethod
    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let the owner count as alive for so many seconds from now."""

    @abstractmethod
    def end(self, owner: str) -> None:
        """Let the owner count as gone from now on."""

    @abstractmethod
    def _state(self, owner: str) -> tuple[bool, bool] | None:
        """Return whether the lease was ended, and whether it has run out; None: there is none."""

    def is_gone(self, owner: str) -> bool:
        """Return whether the owner has ended, or has not renewed its lease in time."""
        has_ended, has_run_out = self._state(owner) or (False, True)
        if has_ended:
            return True
        return not is_alive(owner) if is_here(owner) else has_run_out


class SqliteLeases(Leases):
    """Leases in a SQLite file. `now` is the Unix time; the file has no clock of its own."""

    TABLE = "CREATE TABLE IF NOT EXISTS leases (owner TEXT PRIMARY KEY, until REAL)"

    def __init__(self, db: sqlite3.Connection, now: float) -> None:
        self._db = db
        self._now = now

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let the owner count as alive for so many seconds from now."""
        self._db.execute(
            "INSERT OR REPLACE INTO leases VALUES (?, ?)", (owner, self._now + seconds)
        )

    def end(self, owner: str) -> None:
        """Let the owner count as gone from now on."""
        self._db.execute("INSERT OR REPLACE INTO leases VALUES (?, -1)", (owner,))

    def _state(self, owner: str) -> tuple[bool, bool] | None:
        query = "SELECT until < 0, until <= ? FROM leases WHERE owner = ?"
        row = self._db.execute(query, (self._now, owner)).fetchone()
        return None if row is None else (bool(row[0]), bool(row[1]))


class PostgresLeases(Leases):
    """Leases in a PostgreSQL database, by its clock."""

    TABLE = "CREATE TABLE IF NOT EXISTS leases (owner text PRIMARY KEY, until timestamptz NOT NULL)"

    def __init__(self, db: "Connection") -> None:
        self._db = db

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let the owner count as alive for so many seconds of the database's clock."""
        self._put(owner, "clock_timestamp() + make_interval(secs => %s)", seconds)

    def end(self, owner: str) -> None:
        """Let the owner count as gone from now on."""
        self._put(owner, "'-infinity'")

    def _put(self, owner: str, until: str, *values: float) -> None:
        self._db.execute(
            f"INSERT INTO leases VALUES (%s, {until})"
            " ON CONFLICT (owner) DO UPDATE SET until = excluded.until",
            (owner, *values),
        )

    def _state(self, owner: str) -> tuple[bool, bool] | None:
        query = (
            "SELECT until = '-infinity', until <= clock_timestamp() FROM leases WHERE owner = %s"
        )
        return self._db.execute(query, (owner,)).fetchone()


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
