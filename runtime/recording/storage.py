"""The file of recordings: its tables, writing in atomic batches, and bounds on its size and age.

The oldest entries are deleted to make room, and the file shrinks. Entries of pinned recordings
are never deleted. If only those are left, nothing more is recorded until a recording is unpinned or
deleted. All calls block.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from caesura.runtime.recording.entries import Row
from caesura.scheduler.errors import UsageError
from caesura.scheduler.paths import traces_path
from caesura.stores.leases import is_alive, new_owner
from caesura.stores.sqlite import (
    BUSY_SECONDS,
    PAGE_BYTES,
    Column,
    Schema,
    SqliteFile,
    WrongFile,
    connect,
    set_aside,
    size_of,
    transaction,
)

# `owner` is the process that writes a recording; `updated` and `at` are the Unix times of writes.
# Ids are never reused, so that a reader can continue after the last id that it has read.
SCHEMA = Schema(
    version=1,
    tables=(
        "CREATE TABLE IF NOT EXISTS recordings (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT,"
        " source TEXT, started REAL, ended REAL, updated REAL, owner TEXT, entries INTEGER,"
        " trimmed INTEGER, trimmed_to INTEGER, content INTEGER, about TEXT)",
        "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " recording INTEGER, at REAL, kind TEXT, request TEXT, body TEXT)",
        "CREATE INDEX IF NOT EXISTS by_recording ON entries (recording)",
    ),
    # The version stays, since older programs ignore these columns.
    columns=(
        Column("recordings", "note", "TEXT NOT NULL DEFAULT ''"),
        Column("recordings", "pinned", "INTEGER NOT NULL DEFAULT 0"),
        Column(
            "recordings",
            "sessions",
            "INTEGER NOT NULL DEFAULT 0",
            "UPDATE recordings SET sessions = (SELECT count(*) FROM entries"
            " WHERE recording = recordings.id AND kind = 'session')",
        ),
    ),
    # The first works only in a file without tables.
    settings=("PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA synchronous = NORMAL"),
)

MB = 2**20
DAY_SECONDS = 24 * 3600.0
MAX_FULL_SHARE = 7 / 8
"""The share of the size above which the file counts as full; the rest is for the log."""
LEAVE_FULL = 13 / 16
"""The share that remains after making room, so that not every write has to make room."""
SLICE = 1 / 32
"""The approximate share that one slice deletes: pages that move within the file go to the log."""
MAX_ROWS_PER_SLICE = 10_000
# The first entry that may be deleted is found by the index; what is pinned before it is not read.
_OPEN = (
    "recording NOT IN (SELECT id FROM recordings WHERE pinned) AND id >= ifnull((SELECT min("
    "(SELECT min(id) FROM entries WHERE recording = recordings.id)) FROM recordings"
    " WHERE NOT pinned), 0)"
)
"""The condition of entries that may be deleted."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The largest size of a file of recordings, with its log, and the largest age of an entry."""

    max_bytes: int = 256 * MB
    max_age_seconds: float = 7 * DAY_SECONDS

    @property
    def log_pages(self) -> int:
        """The number of pages in the write-ahead log that start a checkpoint."""
        return max(16, min(1000, self.max_bytes // (32 * PAGE_BYTES)))

    @property
    def batch_bytes(self) -> int:
        """The most bytes of one transaction."""
        return max(4096, min(MB, self.max_bytes // 64))


def is_full(path: Path, bounds: Bounds, wanted: int, most: float = MAX_FULL_SHARE) -> bool:
    """Return whether `wanted` more bytes would exceed the share `most` of the allowed size."""
    # New data is in both the log and the file for a while.
    return size_of(path) + 2 * max(wanted, bounds.batch_bytes) > bounds.max_bytes * most


def make_room(db: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Delete the oldest entries until the file is below `LEAVE_FULL` of its size."""
    if not _checkpoint(db):
        return
    while size_of(path) > bounds.max_bytes * LEAVE_FULL:
        if not _drop_oldest(db, bounds):
            break
    _forget_empty(db)


def drop_old(db: sqlite3.Connection, bounds: Bounds, now: float) -> None:
    """Delete entries that are older than the bounds allow at the Unix time `now`."""
    oldest = now - bounds.max_age_seconds
    while True:
        first = db.execute(f"SELECT at FROM entries WHERE {_OPEN} ORDER BY id LIMIT 1").fetchone()
        if first is None or first[0] >= oldest or not _drop_oldest(db, bounds, oldest):
            break
    _forget_empty(db, oldest)


def _forget_empty(db: sqlite3.Connection, oldest: float | None = None) -> None:
    """Delete recordings whose entries were all deleted, or that ended `oldest` or before."""
    with transaction(db):
        db.execute(
            "DELETE FROM recordings WHERE ended IS NOT NULL AND entries = 0 AND NOT pinned"
            " AND (trimmed > 0 OR ended < ?)",
            (oldest or 0.0,),
        )


def _drop_oldest(db: sqlite3.Connection, bounds: Bounds, oldest: float | None = None) -> bool:
    """Delete one slice of the entries before `oldest`; return False if that makes no room."""
    with transaction(db):
        last = _end_of_slice(db, bounds.max_bytes * SLICE, oldest)
        if last is None:
            return False
        counted = db.execute(
            f"SELECT recording, count(*) FROM entries WHERE id <= ? AND {_OPEN} GROUP BY recording",
            (last,),
        ).fetchall()
        db.execute(f"DELETE FROM entries WHERE id <= ? AND {_OPEN}", (last,))
        db.executemany(
            "UPDATE recordings SET entries = entries - ?, trimmed = trimmed + ?, trimmed_to = ?"
            " WHERE id = ?",
            [(count, count, last, number) for number, count in counted],
        )
    return shrink(db)


def shrink(db: sqlite3.Connection) -> bool:
    """Give the disk back what was deleted; return False if a long read prevents it."""
    # The pragma frees one page per step, and `execute` makes only one step.
    db.executescript("PRAGMA incremental_vacuum")
    return _checkpoint(db)


def _end_of_slice(db: sqlite3.Connection, size: float, oldest: float | None) -> int | None:
    last, left = None, size
    size_and_age = "id, at, length(CAST(body AS BLOB))"
    query = f"SELECT {size_and_age} FROM entries WHERE {_OPEN} ORDER BY id LIMIT ?"
    for number, at, length in db.execute(query, (MAX_ROWS_PER_SLICE,)):
        if left <= 0 or (oldest is not None and at >= oldest):
            break
        last, left = number, left - length
    return last


def _checkpoint(db: sqlite3.Connection) -> bool:
    """Checkpoint and truncate the log; return False if a long read prevents it.

    Without a checkpoint, deletions make the log longer and do not shrink the file.
    """
    began = time.monotonic()
    while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        # SQLite waited for readers, but not for another process's checkpoint.
        if time.monotonic() - began > BUSY_SECONDS:
            return False
        time.sleep(0.01)
    return True


SWEEP_SECONDS = 600.0
"""The interval between two searches for too old entries."""


class StoreFull(OSError):
    """The file cannot be kept within its size: a process reads it for long, or it is too small."""


class Store:
    """A file of recordings, opened at the first use. All methods block; any thread may call them.

    If `path` is None, the file is the one in the user's state directory. The writing methods
    raise sqlite3.Error or OSError if the file cannot be written, and `UsageError` for a file of
    another version. After `close` or `move_aside`, the next use opens the file again.
    """

    def __init__(
        self,
        path: Path | None = None,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path or traces_path()
        self.bounds = bounds or Bounds()
        self._clock = clock
        self._owner = new_owner()
        limits = (
            f"PRAGMA wal_autocheckpoint = {self.bounds.log_pages}",
            f"PRAGMA journal_size_limit = {self.bounds.batch_bytes}",
        )
        schema = replace(SCHEMA, settings=(*SCHEMA.settings, *limits))
        self._file = SqliteFile(self.path, schema, _end_of_the_dead)
        self._swept_at = 0.0

    def begin(
        self,
        title: str,
        source: str,
        about: Mapping[str, Any] | None = None,
        *,
        content: bool = False,
        started: float | None = None,
    ) -> int:
        """Begin a recording and return its number. `started` defaults to now."""
        now = self._clock()
        title = title.encode("utf-8", "replace").decode()  # a path may hold undecodable bytes
        row = (title, source, now if started is None else started, now, self._owner, content)
        with self._using() as db, transaction(db):
            made = db.execute(
                "INSERT INTO recordings (title, source, started, updated, owner, content, about,"
                " entries, trimmed, trimmed_to) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0)",
                (*row, json.dumps(dict(about or {}), default=str)),
            )
        assert made.lastrowid is not None
        return made.lastrowid

    def append(self, recording: int, rows: Sequence[Row]) -> int:
        """Write entries, all or none; return the first id. The ids are consecutive.

        The store first deletes old entries if it needs room. Raises `StoreFull` if that fails.
        """
        now = self._clock()
        with self._using() as db:
            self._make_room(db, now, sum(row.size for row in rows))
            with transaction(db):
                counted = db.execute(
                    # A process in another container looks dead from here, so another process may
                    # have ended this recording.
                    "UPDATE recordings SET entries = entries + ?, updated = ?, ended = NULL,"
                    " sessions = sessions + ? WHERE id = ?",
                    (len(rows), now, sum(row.kind == "session" for row in rows), recording),
                )
                if not counted.rowcount:
                    raise sqlite3.IntegrityError(f"recording {recording} was deleted")
                last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'")
                first = (last.fetchone() or (0,))[0] + 1
                db.executemany(
                    "INSERT INTO entries (id, recording, at, kind, request, body)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    [(first + index, recording, now, *row[:3]) for index, row in enumerate(rows)],
                )
        return int(first)

    def end(self, recording: int, ended: float | None = None) -> None:
        """Mark a recording as ended. `ended` defaults to now."""
        at = self._clock() if ended is None else ended
        with self._using() as db:
            db.execute("UPDATE recordings SET ended = ? WHERE id = ?", (at, recording))

    def is_same(self) -> bool:
        """Return whether the open file is still the one at the path; it may have been deleted."""
        return self._file.is_open and not self._file.is_replaced

    def move_aside(self) -> Path:
        """Rename a corrupt file; return its new path. Raises OSError."""
        self.close()
        return set_aside(self.path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with usable(self.path), self._file.using() as db:
            yield db

    def _make_room(self, db: sqlite3.Connection, now: float, wanted: int) -> None:
        if now - self._swept_at > SWEEP_SECONDS:
            self._swept_at = now
            drop_old(db, self.bounds, now)
        if is_full(self.path, self.bounds, wanted):
            make_room(db, self.path, self.bounds)
            if is_full(self.path, self.bounds, wanted, most=1.0):
                raise StoreFull(
                    f"no room can be made within {self.bounds.max_bytes} bytes: the limit is too"
                    " small, pinned recordings fill it (unpin or delete one with `caesura"
                    " trace`), or another process reads the file for too long"
                )


def _end_of_the_dead(db: sqlite3.Connection) -> None:
    """End the recordings of killed processes, at the time of their last write."""
    unended = "SELECT DISTINCT owner FROM recordings WHERE ended IS NULL"
    for (owner,) in db.execute(unended).fetchall():
        if not is_alive(owner):
            db.execute(
                "UPDATE recordings SET ended = updated WHERE ended IS NULL AND owner = ?", (owner,)
            )


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Raise `UsageError` in place of `WrongFile` for the file at `path`."""
    try:
        yield
    except WrongFile as error:
        if error.version is None:
            said = f"{path} is the database of another program: choose another file"
        else:
            said = (
                f"{path} has version {error.version} of the file format, but this Caesura reads"
                f" version {SCHEMA.version}: move the file away, or choose another file"
            )
        raise UsageError(said) from None


@contextmanager
def open_to_write(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing file to change recordings. Raises `UsageError` if that fails."""
    if not path.is_file():
        raise UsageError(f"there are no traces in {path}: --store names another file")
    with _opened(path, "changed") as db:
        yield db


@contextmanager
def open_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing file for reading. Raises `UsageError` if that fails."""
    if not path.is_file():
        raise UsageError(
            f"there are no traces in {path}: `caesura serve` records them, and --store names"
            " another file"
        )
    with _opened(path, "read", read_only=True) as db:
        yield db


@contextmanager
def _opened(path: Path, how: str, *, read_only: bool = False) -> Iterator[sqlite3.Connection]:
    try:
        with usable(path), closing(connect(path, SCHEMA, read_only=read_only)) as db:
            yield db
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"{path} cannot be {how}: {error}") from None
