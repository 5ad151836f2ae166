"""SQLite files of ours: opening, checking and sharing one, and moving a broken one aside.

With a write-ahead log, processes can read a file while another one writes it. A killed process
loses no committed data. Several processes may share a file. All calls block.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

BUSY_SECONDS = 2.0
"""How long a connection waits for a locked file, unless it is told otherwise."""
RETRY_SECONDS = 0.05
PAGE_BYTES = 4096
BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm")


class WrongFile(sqlite3.DatabaseError):
    """A file belongs to another program, or has a version of ours that this one cannot read.

    Nothing in the file was changed. `version` is the file's; None: another program's.
    """

    def __init__(self, message: str, version: int | None = None) -> None:
        super().__init__(message)
        self.version = version


@dataclass(frozen=True, slots=True)
class Column:
    """A column that files of an older program lack. Writing connections add it."""

    table: str
    name: str
    declared: str
    """Its type and default."""
    fill: str = ""
    """A statement that fills it in an older file."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A kind of file: its tables, its version, and the settings of a connection that writes it."""

    tables: Sequence[str]
    """Statements that make the tables, and do nothing where those exist."""
    version: int | None = None
    """The version of the tables; None: they never change, and no file is refused."""
    older: Sequence[int] = ()
    """Versions of files that only lack `columns`. They get this one."""
    columns: Sequence[Column] = ()
    application: int = 0
    """SQLite's `application_id`, which tells whose file it is; 0: the file does not tell."""
    settings: Sequence[str] = ("PRAGMA synchronous = NORMAL",)
    """Settings of each connection. Some work only before the journal mode is set."""
    busy_seconds: float | None = None
    """How long a connection waits for a locked file; None: `BUSY_SECONDS`."""
    is_private: bool = True
    """Whether a new file may be read by its owner only."""


def connect(path: Path | None, schema: Schema, *, read_only: bool = False) -> sqlite3.Connection:
    """Return a connection that any thread may use, and whose transactions begin explicitly.

    A missing file is made, with its folder and its tables, unless the connection is `read_only`.
    None is a database in memory. Raises sqlite3.Error, among them `WrongFile`, and OSError.
    """
    if path is not None and not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600 if schema.is_private else 0o666)
    seconds = BUSY_SECONDS if schema.busy_seconds is None else schema.busy_seconds
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro" if path and read_only else path or ":memory:",
        uri=read_only,
        timeout=seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _check(db, schema, read_only)
        if not read_only:
            _prepare(db, schema, seconds)
    except BaseException:
        db.close()
        raise
    return db


class SqliteFile:
    """A file that is opened at the first use, and again after `close`; threads share it.

    `path` None keeps all in memory, until `close`. `opened` is called with each new connection.
    """

    def __init__(
        self,
        path: Path | None,
        schema: Schema,
        opened: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        self.path = path
        self._schema = schema
        self._opened = opened
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode: int | None = None

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection to one thread at a time; raises what `connect` raises."""
        with self._lock:
            yield self._open()

    def open(self) -> None:
        """Open the file unless it is open; raises what `connect` raises."""
        with self._lock:
            self._open()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._db is not None

    @property
    def is_replaced(self) -> bool:
        """Whether the file was deleted or replaced while it is open."""
        return self._db is not None and _inode_of(self.path) != self._inode

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        with self._lock:
            if self._db is not None:
                with suppress(sqlite3.Error):
                    self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            db = connect(self.path, self._schema)
            try:
                if self._opened is not None:
                    self._opened(db)
            except BaseException:
                db.close()
                raise
            self._db, self._inode = db, _inode_of(self.path)
        return self._db


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


def columns_of(db: sqlite3.Connection, table: str) -> set[str]:
    """Return the names of a table's columns in this file; empty for a table that is not there."""
    return {name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def is_locked(error: BaseException) -> bool:
    """Return whether the error says that another process has locked the file."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: BaseException) -> bool:
    """Return whether the error says that the file is not a database, or is corrupt."""
    return _code(error) in BROKEN


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


def _check(db: sqlite3.Connection, schema: Schema, read_only: bool) -> None:
    """Raise `WrongFile` unless the file is ours, or new and empty."""
    version, application, tables = db.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_user_version, pragma_application_id"
    ).fetchone()
    is_new = not (version or application or tables)
    if schema.version is None or (is_new and not (read_only and schema.application)):
        return
    if application != schema.application or version == 0:
        raise WrongFile("the file holds another program's tables")
    if version != schema.version and (read_only or version not in schema.older):
        raise WrongFile(
            f"the file has version {version}, and this program reads version {schema.version}",
            version,
        )


def _prepare(db: sqlite3.Connection, schema: Schema, seconds: float) -> None:
    for statement in schema.settings:
        db.execute(statement)
    _write_ahead(db, time.monotonic() + seconds)
    with transaction(db):
        for statement in schema.tables:
            db.execute(statement)
        for column in schema.columns:
            if column.name not in columns_of(db, column.table):
                db.execute(f"ALTER TABLE {column.table} ADD COLUMN {column.name} {column.declared}")
                if column.fill:
                    db.execute(column.fill)
        if schema.version is not None:
            db.execute(f"PRAGMA application_id = {schema.application}")
            db.execute(f"PRAGMA user_version = {schema.version}")


def _write_ahead(db: sqlite3.Connection, until: float) -> None:
    """Set the journal mode; SQLite refuses that at once while another process sets it too."""
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_locked(error) or time.monotonic() >= until:
                raise
        time.sleep(RETRY_SECONDS)


def _inode_of(path: Path | None) -> int | None:
    if path is None:
        return None
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
