"""The SQLite file of recordings: opening it, and what to do with one that is broken. All blocking.

A write-ahead log lets others read while one writes, and loses nothing that was committed when a
process is killed. Several processes may share the file.
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
"""How long a locked file is waited for."""
TRIES = 5
"""Whoever changes the journal of a new file is refused at once if another does so too."""
PAGE_BYTES = 4096
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm")

# `owner` is the process that writes a recording; `updated`, `at`: when it was written to, Unix
# time. Ids are never used twice, so that whoever has read up to one can go on behind it.
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS recordings (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT,"
    " source TEXT, started REAL, ended REAL, updated REAL, owner TEXT, entries INTEGER,"
    " trimmed INTEGER, trimmed_to INTEGER, content INTEGER, about TEXT)",
    "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY AUTOINCREMENT, recording INTEGER,"
    " at REAL, kind TEXT, request TEXT, body TEXT)",
    "CREATE INDEX IF NOT EXISTS by_recording ON entries (recording)",
    f"PRAGMA user_version = {VERSION}",
)


def opened(path: Path) -> sqlite3.Connection:
    """Open the file for writing, and make it if there is none.

    Raises sqlite3.Error and OSError, and `UsageError` for a file of another version.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)  # what was said may be private
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
    _check_version(db, path)  # before anything is changed in a file that is somebody else's
    # This only takes in a file without tables, and has to come before the journal is chosen.
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    with transaction(db):
        for statement in _SCHEMA:
            db.execute(statement)


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that exists to read it. Raises `UsageError` where that is not possible."""
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
    """Write all of it or nothing; others that write are waited for."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk ends the transaction by itself
            db.execute("ROLLBACK")
        raise


def is_locked(error: sqlite3.Error) -> bool:
    """Whether another process holds the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: BaseException) -> bool:
    """Whether the error says that the file is not, or no more, a data base."""
    return isinstance(error, sqlite3.Error) and _code(error) in BROKEN


def set_aside(path: Path) -> Path:
    """Move a broken file out of the way; return where it is now. Raises OSError."""
    aside = path.with_name(f"{path.name}.broken-{int(time.time())}")
    path.replace(aside)
    for suffix in SIDECARS:
        with suppress(OSError):
            Path(f"{path}{suffix}").replace(f"{aside}{suffix}")
    return aside


def size_of(path: Path) -> int:
    """Bytes on the disk, the write-ahead log included."""
    total = 0
    for each in (path, Path(f"{path}-wal")):
        with suppress(OSError):
            total += each.stat().st_size
    return total


def may_be_one(path: Path) -> bool:
    """Whether a file of recordings may be there, or be made: what is there is a data base."""
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
        raise UsageError(f"{path} is the data base of another program: name another file")
    if version not in (0, VERSION):
        raise UsageError(
            f"{path} was written by another version of Caesura ({version}, and {VERSION} is"
            " expected): move it away, or name another file"
        )


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
