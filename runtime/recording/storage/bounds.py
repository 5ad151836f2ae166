"""Keeping the file within its size and age: the oldest entries go, and the file really shrinks."""

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
"""The rest is for the write-ahead log."""
LEAVE_FULL = 13 / 16
"""What is left when room was made, so that it is not made at every write."""
SLICE = 1 / 32
"""About so much goes at a time: what is moved within the file goes through the log first."""
MAX_ROWS_PER_SLICE = 10_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a file of recordings may come to: bytes, its log included, and seconds of age."""

    max_bytes: int = 256 * MB
    max_age_seconds: float = 7 * DAY_SECONDS

    @property
    def log_pages(self) -> int:
        """After so many pages the write-ahead log is put into the file."""
        return max(16, min(1000, self.max_bytes // (32 * PAGE_BYTES)))

    @property
    def batch_bytes(self) -> int:
        """So much is written in one transaction, at most."""
        return max(4096, min(MB, self.max_bytes // 64))


def is_full(path: Path, bounds: Bounds, wanted: int, most: float = MAX_FULL_SHARE) -> bool:
    """Whether so many bytes more would be too many, for that share of what is allowed."""
    # What is written is for a while in the log and in the file.
    return size_of(path) + 2 * max(wanted, bounds.batch_bytes) > bounds.max_bytes * most


def make_room(db: sqlite3.Connection, path: Path, bounds: Bounds) -> None:
    """Delete the oldest entries until the file is well within its size."""
    if not _checkpoint(db):
        return
    while size_of(path) > bounds.max_bytes * LEAVE_FULL:
        if not _drop_oldest(db, bounds):
            break
    _forget_empty(db)


def drop_old(db: sqlite3.Connection, bounds: Bounds, now: float) -> None:
    """Delete what was written too long ago; now: Unix time."""
    oldest = now - bounds.max_age_seconds
    while True:
        first = db.execute("SELECT at FROM entries ORDER BY id LIMIT 1").fetchone()
        if first is None or first[0] >= oldest or not _drop_oldest(db, bounds, oldest):
            break
    _forget_empty(db, oldest)


def _forget_empty(db: sqlite3.Connection, oldest: float | None = None) -> None:
    """Delete recordings whose entries were all deleted, or that ended `oldest` or before."""
    with transaction(db):
        db.execute(
            "DELETE FROM recordings WHERE ended IS NOT NULL AND entries = 0"
            " AND (trimmed > 0 OR ended < ?)",
            (oldest or 0.0,),
        )


def _drop_oldest(db: sqlite3.Connection, bounds: Bounds, oldest: float | None = None) -> bool:
    """Delete one slice of entries, those of before `oldest` only; False if that makes no room."""
    with transaction(db):
        last = _end_of_slice(db, bounds.max_bytes * SLICE, oldest)
        if last is None:
            return False
        counted = db.execute(
            "SELECT recording, count(*) FROM entries WHERE id <= ? GROUP BY recording", (last,)
        ).fetchall()
        db.execute("DELETE FROM entries WHERE id <= ?", (last,))
        db.executemany(
            "UPDATE recordings SET entries = entries - ?, trimmed = trimmed + ?, trimmed_to = ?"
            " WHERE id = ?",
            [(count, count, last, number) for number, count in counted],
        )
    # It does a page at each step, and `execute` makes one step only.
    db.executescript("PRAGMA incremental_vacuum")
    return _checkpoint(db)


def _end_of_slice(db: sqlite3.Connection, size: float, oldest: float | None) -> int | None:
    last, left = None, size
    query = "SELECT id, at, length(CAST(body AS BLOB)) FROM entries ORDER BY id LIMIT ?"
    for number, at, length in db.execute(query, (MAX_ROWS_PER_SLICE,)):
        if left <= 0 or (oldest is not None and at >= oldest):
            break
        last, left = number, left - length
    return last


def _checkpoint(db: sqlite3.Connection) -> bool:
    """Put the log into the file and empty it; False if somebody who reads for long is in the way.

    Without that, whatever is deleted makes the log longer and nothing shorter.
    """
    began = time.monotonic()
    while db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        # Readers were waited for; another process that does the same just now was not.
        if time.monotonic() - began > BUSY_SECONDS:
            return False
        time.sleep(0.01)
    return True
