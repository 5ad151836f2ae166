"""The SQLite file of pending items, or a database in memory if it fails. All methods block."""

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from caesura.tools.people.pending import Pending

T = TypeVar("T")

logger = logging.getLogger(__name__)

VERSION = 1
BUSY_SECONDS = 2.0
"""How long to wait for a locked file."""
MAX_BYTES = 64 * 2**20
PAGE_BYTES = 4096

ITEM = tuple(field.name for field in fields(Pending))
# `identity` recognises the same question asked again. `taken` tells whether a run has the
# answer: 0 no, 1 a run that goes on, 2 a run that has ended.
COLUMNS = (*ITEM, "identity", "owner", "taken")
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
INSERT = f"INSERT INTO items ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS items ({_NAMES}, PRIMARY KEY ("id"));
CREATE INDEX IF NOT EXISTS by_identity ON items ("identity");
CREATE INDEX IF NOT EXISTS by_state ON items ("state");
PRAGMA user_version = {VERSION};
"""


class Database:
    """A connection, opened at the first use and shared by threads.

    path: None keeps the items in memory. When the file fails, the items that can still be read
    continue in memory; `trouble` and the log say why.
    """

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self.trouble: str | None = None
        self._path = path
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work` on the file, or on memory if the file fails."""
        with self._lock:
            try:
                self._db = self._db or _opened(self._path, self._max_bytes)
                return work(self._db)
            except (sqlite3.Error, OSError) as error:
                if self._path is None or self.trouble is not None:
                    raise
                self.trouble = f"{self._path} cannot be used: {error}"
                logger.warning(
                    "pending questions are kept in memory only and will be lost at a restart: %s",
                    self.trouble,
                )
                self._db = _in_memory(self._db)
                return work(self._db)

    def close(self) -> None:
        """Close the file; the next use opens it again. Items in memory stay."""
        with self._lock:
            if self._db is not None and self._path is not None and self.trouble is None:
                self._db.close()
                self._db = None


def _opened(path: Path | None, max_bytes: int) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # questions may be private
    db = sqlite3.connect(
        path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode = WAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(
                f"the file has version {version}; this program reads {VERSION}"
            )
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
    except BaseException:
        db.close()
        raise
    return db


def _in_memory(file: sqlite3.Connection | None) -> sqlite3.Connection:
    """Return a database in memory with the items that can be read of the file."""
    db = _opened(None, MAX_BYTES)
    if file is not None:
        try:
            rows = [tuple(row) for row in file.execute(f"SELECT {_NAMES} FROM items")]
            db.executemany(INSERT, rows)
        except sqlite3.Error as error:
            logger.warning("earlier questions are lost: %s", error)
        file.close()
    return db
