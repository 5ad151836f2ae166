"""The SQLite file of recordings: opening it, and moving a corrupt one away. All calls block.

With a write-ahead log, processes can read while another one writes. A killed process loses no
committed data. Several processes may share the file.
"""

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from caesura.runtime.errors import UsageError

LOG = logging.getLogger(__name__)

VERSION = 1
BUSY_SECONDS = 2.0
"""How long a connection waits for a locked file."""
TRIES = 5
"""SQLite refuses to set the journal mode at once if another process sets it too."""
PAGE_BYTES = 4096
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm")

# `owner` is the process that writes a recording; `updated` and `at` are the Unix times of writes.
# Ids are never reused, so that a reader can continue after the last id that it has read.
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS recordings (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT,"
    " source TEXT, started REAL, ended REAL, updated REAL, owner TEXT, entries INTEGER,"
    " trimmed INTEGER, trimmed_to INTEGER, content INTEGER, about TEXT)",
    "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY AUTOINCREMENT, recording INTEGER,"
    " at REAL, kind TEXT, request TEXT, body TEXT)",
    "CREATE INDEX IF NOT EXISTS by_recording ON entries (recording)",
    f"PRAGMA user_version = {VERSION}",
)
# Columns that a file of an older Caesura lacks. The version stays: older ones ignore them.
ADDED = {
    "note": ("TEXT NOT NULL DEFAULT ''", None),
    "pinned": ("INTEGER NOT NULL DEFAULT 0", None),
    "sessions": (
        "INTEGER NOT NULL DEFAULT 0",
        "UPDATE recordings SET sessions = (SELECT count(*) FROM entries"
        " WHERE recording = recordings.id AND kind = 'session')",
    ),
}
"""Later columns of `recordings`: their type, and how they are filled in an older file."""


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection for writing; create the file if it does not exist.

    Raises sqlite3.Error and OSError, and `UsageError` for a file of another version.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)  # recorded content may be private
    for left in reversed(range(TRIES)):
        db = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(db, path)
            return db
        except BaseException as error:
            db.close()
            if not (left and isinstance(error, sqlite3.OperationalError) and is_locked(error)):
                raise
        time.sleep(0.05)
    raise AssertionError("the last try returns or raises")


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    _check_version(db, path)  # must come before any change to another program's file
    # This works only in a file without tables, and before the journal mode is set.
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    with transaction(db):
        for statement in _SCHEMA:
            db.execute(statement)
        known = columns_of(db)
        for name, (declared, fill) in ADDED.items():
            if name not in known:
                db.execute(f"ALTER TABLE recordings ADD COLUMN {name} {declared}")
                if fill is not None:
                    db.execute(fill)


def columns_of(db: sqlite3.Connection) -> set[str]:
    """Return the columns of `recordings` in this file."""
    return {row[0] for row in db.execute("SELECT name FROM pragma_table_info('recordings')")}


@contextmanager
def writing(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing file to change recordings. Raises `UsageError` if that fails."""
    try:
        if not path.is_file():
            raise UsageError(f"there are no traces in {path}: --store names another file")
        db = opened(path)
        try:
            yield db
        finally:
            db.close()
    except (sqlite3.Error, OSError) as error:
        raise UsageError(f"{path} cannot be changed: {error}") from None


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing file for reading. Raises `UsageError` if that fails."""
    if not path.is_file():
        raise UsageError(
            f"there are no traces in {path}: `caesura serve` records them, and --store names"
            " another file"
        )
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
        )
        try:
            _check_version(db, path)
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Run the context's statements in one transaction, after waiting for other writers."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite rolls back by itself on a full disk
            db.execute("ROLLBACK")
        raise


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether the error says that another process has locked the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: BaseException) -> bool:
    """Return whether the error says that the file is not a database, or is corrupt."""
    return isinstance(error, sqlite3.Error) and _code(error) in BROKEN


def set_aside(path: Path) -> Path:
    """Rename a corrupt file; return its new path. Raises OSError."""
    aside = path.with_name(f"{path.name}.broken-{int(time.time())}")
    path.replace(aside)
    for suffix in SIDECARS:
        with suppress(OSError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside


def size_of(path: Path) -> int:
    """Return the file's bytes on the disk, including the write-ahead log."""
    total = 0
    for each in (path, Path(f"{path}-wal")):
        with suppress(OSError):
            total += each.stat().st_size
    return total


def may_be_one(path: Path) -> bool:
    """Return whether the path is a database or can become one: it is empty or does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) in (b"", MAGIC)
    except OSError:
        return True


def _check_version(db: sqlite3.Connection, path: Path) -> None:
    version, tables = db.execute(
        "SELECT user_version, (SELECT count(*) FROM sqlite_master) FROM pragma_user_version"
    ).fetchone()
    if version == 0 and tables:
        raise UsageError(f"{path} is the database of another program: choose another file")
    if version not in (0, VERSION):
        raise UsageError(
            f"{path} has version {version} of the file format, but this Caesura reads version"
            f" {VERSION}: move the file away, or choose another file"
        )


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
