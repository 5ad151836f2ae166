"""Writing recordings to their file, in atomic batches."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from caesura.runtime.recording.entries import Row
from caesura.runtime.recording.storage.bounds import Bounds, drop_old, is_full, make_room
from caesura.runtime.recording.storage.database import opened, set_aside, transaction
from caesura.scheduler.paths import traces_path
from caesura.tools.people.owner import is_alive, new_owner

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
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0
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
        with self._lock, transaction(self._open()) as _:
            made = self._open().execute(
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
        with self._lock:
            db = self._open()
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
        with self._lock:
            self._open().execute("UPDATE recordings SET ended = ? WHERE id = ?", (at, recording))

    def is_same(self) -> bool:
        """Return whether the open file is still the one at the path; it may have been deleted."""
        with self._lock:
            return self._db is not None and _inode(self.path) == self._inode

    def move_aside(self) -> Path:
        """Rename a corrupt file; return its new path. Raises OSError."""
        self.close()
        return set_aside(self.path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = opened(self.path)
            self._inode = _inode(self.path)
            self._db.execute(f"PRAGMA wal_autocheckpoint = {self.bounds.log_pages}")
            self._db.execute(f"PRAGMA journal_size_limit = {self.bounds.batch_bytes}")
            _end_of_the_dead(self._db)
        return self._db

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


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
