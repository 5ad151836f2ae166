"""The SQLite file of journals. All methods block; any thread may call them."""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TypeVar

from caesura.runtime.journal.store import (
    LEASE_SECONDS,
    Bounds,
    Entry,
    JournalUnavailable,
)
from caesura.runtime.recording.storage.database import is_broken, set_aside, transaction
from caesura.tools.people import owner as leases

T = TypeVar("T")

LOG = logging.getLogger(__name__)

VERSION = 2
BUSY_SECONDS = 2.0
"""How long to wait for a locked file."""

# `began` and `at` are Unix times. Entries come at their table's end, since pages that are changed
# are written as a whole.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT,"
    " began REAL)",
    "CREATE INDEX IF NOT EXISTS by_begin ON runs (began)",
    "CREATE TABLE IF NOT EXISTS entries (run INTEGER, number INTEGER, at REAL, body TEXT,"
    " UNIQUE (run, number))",
    leases.SCHEMA,
    f"PRAGMA user_version = {VERSION}",
)
# One statement takes many rows, as JSON. Between two rows of its own, Python would wait for its
# lock, up to 5 ms each time while the event loop works.
_BEGIN = "INSERT OR IGNORE INTO runs (id, owner, began) SELECT value, ?, ? FROM json_each(?)"
_ADD = """
    INSERT OR IGNORE INTO entries SELECT runs.number, json_extract(given.value, '$[1]'), ?,
    json_extract(given.value, '$[2]') FROM json_each(?) AS given
    JOIN runs ON runs.id = json_extract(given.value, '$[0]') AND runs.owner = ?
"""
_HELD = "owner = ? AND id IN (SELECT value FROM json_each(?))"


class SqliteJournal:
    """A `JournalStore` in one file, which the processes of one machine may share.

    `path` None keeps it in memory. `clock` returns seconds since 1970. The file is opened at the
    first use, and again after it has failed or was deleted. A corrupt one is moved aside.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._is_durable: bool | None = None

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold."""
        rows = json.dumps([(each.run, each.number, each.body) for each in entries])
        begun = [each.run for each in entries if each.number == 0]
        runs = {each.run for each in entries}

        def work(db: sqlite3.Connection) -> frozenset[str]:
            now = self._clock()
            self._set_durable(db, durable)
            with transaction(db) if begun else nullcontext():
                if begun:
                    db.execute(_BEGIN, (owner, now, json.dumps(begun)))
                added = db.execute(_ADD, (now, rows, owner)).rowcount
            if added == len(entries):
                return frozenset()
            held = db.execute(f"SELECT id FROM runs WHERE {_HELD}", (owner, json.dumps([*runs])))
            return frozenset(runs.difference(run for (run,) in held))

        return self._do(work)

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        self._do(lambda db: leases.renew(db, owner, self._clock(), seconds))

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        self._do(lambda db: leases.end_lease(db, owner))

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, oldest first."""

        def work(db: sqlite3.Connection) -> list[str]:
            now = self._clock()
            rows = db.execute("SELECT id, owner FROM runs ORDER BY began, id").fetchall()
            gone = {owner: leases.is_gone(db, owner, now) for owner in {row[1] for row in rows}}
            return [run for run, owner in rows if gone[owner]]

        return self._do(work)

    def claim(self, run: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it."""

        def work(db: sqlite3.Connection) -> bool:
            with transaction(db):
                row = db.execute("SELECT owner FROM runs WHERE id = ?", (run,)).fetchone()
                if row is None:
                    return False
                if row[0] == owner:
                    return True
                if not leases.is_gone(db, row[0], self._clock()):
                    return False
                db.execute("UPDATE runs SET owner = ? WHERE id = ?", (owner, run))
                return True

        return self._do(work)

    def load(self, run: str) -> list[str]:
        """Return the bodies of a run's entries in order, empty from the first missing one on."""
        query = (
            "SELECT entries.number, body FROM entries JOIN runs ON run = runs.number"
            " WHERE id = ? ORDER BY entries.number"
        )
        rows = self._do(lambda db: db.execute(query, (run,)).fetchall())
        return [body if place == number else "" for place, (number, body) in enumerate(rows)]

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""

        def work(db: sqlite3.Connection) -> None:
            with transaction(db):
                values = (owner, json.dumps([*runs]))
                query = "DELETE FROM entries WHERE run IN (SELECT number FROM runs WHERE"
                db.execute(f"{query} {_HELD})", values)
                db.execute(f"DELETE FROM runs WHERE {_HELD}", values)

        self._do(work)

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases of owners without runs; return the runs."""

        def work(db: sqlite3.Connection) -> list[str]:
            now = self._clock()
            with transaction(db):
                query = (
                    "SELECT id, coalesce(sum(length(body)), 0), coalesce(max(at), began) < ?"
                    " FROM runs LEFT JOIN entries ON run = runs.number GROUP BY runs.number"
                    " ORDER BY began, id"
                )
                rows = db.execute(query, (now - bounds.max_age_seconds,)).fetchall()
                gone = bounds.surplus(rows)
                of_gone = (
                    "IN (SELECT number FROM runs WHERE id IN (SELECT value FROM json_each(?)))"
                )
                db.execute(f"DELETE FROM entries WHERE run {of_gone}", (json.dumps(gone),))
                db.execute(f"DELETE FROM runs WHERE number {of_gone}", (json.dumps(gone),))
                unused = "until < ? AND owner NOT IN (SELECT owner FROM runs)"
                db.execute(f"DELETE FROM leases WHERE {unused}", (now - LEASE_SECONDS,))
            return gone

        return self._do(work)

    def close(self) -> None:
        """Close the file; the next call opens it again. What is in memory stays."""
        with self._lock:
            if self.path is not None:
                self._drop()

    def _set_durable(self, db: sqlite3.Connection, durable: bool) -> None:
        if durable is not self._is_durable:
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

    # -- the connection --------------------------------------------------------------------------

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                return work(self._opened())
            except (sqlite3.Error, OSError) as error:
                if self.path is None:
                    raise JournalUnavailable(f"the journal in memory failed: {error}") from error
                self._drop()
                self._set_aside_if_broken(error)
                raise JournalUnavailable(f"{self.path} cannot be used: {error}") from error

    def _opened(self) -> sqlite3.Connection:
        if self._db is not None and self._inode != _inode_of(self.path):
            self._drop()  # the file was deleted or replaced
        if self._db is None:
            self._db, self._is_durable = _connected(self.path), None
            self._inode = _inode_of(self.path)
        return self._db

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
        self._db = None

    def _set_aside_if_broken(self, error: BaseException) -> None:
        if self.path is not None and is_broken(error):
            with suppress(OSError):
                aside = set_aside(self.path)
                LOG.warning("%s is no journal and was moved to %s: %s", self.path, aside, error)


def _connected(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # prompts and results are private
    db = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version != VERSION and (version or tables):
            raise sqlite3.DatabaseError(
                f"the file has version {version} or another program's tables; this program reads "
                f"version {VERSION}"
            )
        db.execute("PRAGMA journal_mode = WAL")
        with transaction(db):
            for statement in _TABLES:
                db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db


def _inode_of(path: Path | None) -> int | None:
    if path is None:
        return None
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
