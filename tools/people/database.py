"""The SQLite file of pending items, or a database in memory while it fails. All methods block."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from caesura.tools.people import owner as leases
from caesura.tools.people.pending import UNSETTLED, Pending

T = TypeVar("T")

logger = logging.getLogger(__name__)

VERSION = 1
BUSY_SECONDS = 2.0
"""How long to wait for a locked file."""
RETRY_SECONDS = 5.0
"""How long to wait before a file that failed is tried again."""
MAX_BYTES = 64 * 2**20
PAGE_BYTES = 4096

ITEM = tuple(field.name for field in fields(Pending))
# `identity` recognises the same question asked again. `taken` tells whether a run has the
# answer: 0 no, 1 a run that goes on, 2 a run that has ended, 3 not yet, but it is for the run of
# the owner alone, which another process answered.
COLUMNS = (*ITEM, "identity", "owner", "taken")
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
INSERT = f"INSERT INTO items ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS items ({_NAMES}, PRIMARY KEY ("id"));
CREATE INDEX IF NOT EXISTS by_identity ON items ("identity");
CREATE INDEX IF NOT EXISTS by_state ON items ("state");
{leases.SCHEMA};
PRAGMA user_version = {VERSION};
"""

Row = tuple[Any, ...]


class Database:
    """A connection, opened at the first use and shared by threads.

    path: None keeps the items in memory. While the file fails, the items that can still be read
    continue in memory; `trouble` and the log say why. The file is tried again every
    `RETRY_SECONDS`, and then gets what has changed. A file that was deleted is written again.
    """

    def __init__(
        self, path: Path | None, max_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.trouble: str | None = None
        self._path = path
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode: int | None = None
        self._retry_at = 0.0
        self._before: dict[str, Row] = {}
        """The rows that came from the file into memory, by id."""

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work` on the file, or on memory if the file fails."""
        with self._lock:
            if self.trouble is not None and self._clock() >= self._retry_at:
                self._come_back()
            try:
                return work(self._opened())
            except (sqlite3.Error, OSError) as error:
                if self._path is None or self.trouble is not None:
                    raise
                self._fall_back(error)
                assert self._db is not None
                return work(self._db)

    def close(self) -> None:
        """Close the file; the next use opens it again. Items in memory stay."""
        with self._lock:
            if self._db is not None and self._path is not None and self.trouble is None:
                self._db.close()
                self._db = None

    def _opened(self) -> sqlite3.Connection:
        if self.trouble is not None or (self._path is None and self._db is not None):
            assert self._db is not None
            return self._db
        if self._db is not None and _inode_of(self._path) != self._inode:
            self._write_again(self._db)
        if self._db is None:
            self._db = _connected(self._path, self._max_bytes)
            self._inode = _inode_of(self._path)
        return self._db

    def _write_again(self, deleted: sqlite3.Connection) -> None:
        """Put the items of a file that was deleted, and is still open, into a new one."""
        logger.warning("%s was deleted or replaced: its questions are written again", self._path)
        new = _connected(self._path, self._max_bytes)
        try:
            _put(new, _rows(deleted), replace=False)
        except BaseException:
            new.close()
            raise
        deleted.close()
        self._db, self._inode = new, _inode_of(self._path)

    def _fall_back(self, error: Exception) -> None:
        self.trouble = f"{self._path} cannot be used: {error}"
        self._retry_at = self._clock() + RETRY_SECONDS
        logger.warning(
            "pending questions are kept in memory until the file can be used again, and are lost "
            "if the process ends before: %s",
            self.trouble,
        )
        file, self._db = self._db, _connected(None, MAX_BYTES)
        self._before = {}
        if file is not None:
            try:
                rows = list(_rows(file))
                _put(self._db, rows, replace=False)
                self._before = {row[0]: row for row in rows}
            except sqlite3.Error as lost:
                logger.warning("earlier questions are not seen meanwhile: %s", lost)
            file.close()

    def _come_back(self) -> None:
        """Use the file again, with what has changed in memory, if it works now."""
        memory = self._db
        assert memory is not None
        try:
            file = _connected(self._path, self._max_bytes)
        except (sqlite3.Error, OSError):
            self._retry_at = self._clock() + RETRY_SECONDS
            return
        try:
            changed = [row for row in _rows(memory) if self._before.get(row[0]) != row]
            _put(file, changed, replace=True)
        except (sqlite3.Error, OSError):
            file.close()
            self._retry_at = self._clock() + RETRY_SECONDS
            return
        memory.close()
        self._db, self._inode = file, _inode_of(self._path)
        self.trouble = None
        self._before = {}
        logger.warning("%s can be used again; nothing was lost", self._path)


def _connected(path: Path | None, max_bytes: int) -> sqlite3.Connection:
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
        _add_tenant(db)
        db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}")
    except BaseException:
        db.close()
        raise
    return db


def _add_tenant(db: sqlite3.Connection) -> None:
    """Add the column to a file of before it, whose items are nobody's. Both ways can be read."""
    query = "SELECT count(*) FROM pragma_table_info('items') WHERE name = 'tenant'"
    if db.execute(query).fetchone()[0]:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        if not db.execute(query).fetchone()[0]:  # another process may have added it just now
            db.execute("ALTER TABLE items ADD COLUMN \"tenant\" DEFAULT ''")
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _rows(db: sqlite3.Connection) -> Iterable[Row]:
    return [tuple(row) for row in db.execute(f"SELECT {_NAMES} FROM items")]


def _put(db: sqlite3.Connection, rows: Iterable[Row], *, replace: bool) -> None:
    """Write rows in one transaction; an answer that the file has stays."""
    way = "REPLACE" if replace else "IGNORE"
    statement = INSERT.replace("INSERT", f"INSERT OR {way}", 1)
    state = COLUMNS.index("state")
    db.execute("BEGIN IMMEDIATE")
    try:
        for row in rows:
            found = db.execute('SELECT "state" FROM items WHERE "id" = ?', (row[0],)).fetchone()
            settled = found is not None and found[0] not in UNSETTLED
            if not (settled and row[state] in UNSETTLED):
                db.execute(statement, row)
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _inode_of(path: Path | None) -> int | None:
    if path is None:
        return None
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None
