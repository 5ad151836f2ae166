"""Bounds on the file's size and age: deletes the oldest entries and shrinks the file.

Entries of pinned recordings are never deleted. If only those are left, nothing more is recorded
until a recording is unpinned or deleted.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from caesura.runtime.recording.storage.database import (
    BUSY_SECONDS,
    PAGE_BYTES,
    size_of,
    transaction,
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
