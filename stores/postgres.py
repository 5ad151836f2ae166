"""A PostgreSQL database that servers share: one connection, opened again after it was lost.

It needs the extra `postgres`.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from caesura.distribution import install

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

SCHEMA = "caesura"
"""The schema that holds all tables."""
VERSION = 1
SCHEMES = ("postgresql", "postgres")
ADDRESS = "an address is `postgresql://USER@HOST:PORT/DATABASE`"
CONNECT_SECONDS = 5
STATEMENT_MS = 10_000
LOCK_MS = 5_000
_LOST_MS = 10_000
"""How long a server may leave sent data unacknowledged before its connection counts as lost."""
_SETTINGS = {
    "connect_timeout": CONNECT_SECONDS,
    "tcp_user_timeout": _LOST_MS,
    "application_name": "caesura",
    # A pooler may give each transaction another connection, which knows no prepared statement.
    "prepare_threshold": None,
}
_LOCK = 0x6361657375726131
"""The key of the advisory lock under which tables are made: servers may start together."""


class Misconfigured(ValueError):
    """The address names no database that can be used; the message says how to fix it."""


class Unavailable(Exception):
    """The database cannot be used now; the message is one sentence that says why.

    The same call may succeed later.
    """


class Database:
    """A database with our tables. All methods block; any thread may call them.

    `address` is a `postgresql://` address. What it leaves out comes from libpq's own variables
    (PGPASSWORD, PGPASSFILE, PGSSLMODE and so on). `tables` are statements that make the tables,
    and do nothing where they exist. Raises `Misconfigured` for another address, and without
    psycopg.
    """

    def __init__(self, address: str, tables: Sequence[str]) -> None:
        self._psycopg = _psycopg()
        if urlsplit(address).scheme not in SCHEMES:
            raise Misconfigured(f"{shown(address)!r} names no PostgreSQL database: {ADDRESS}")
        self._address = address
        self._tables = tables
        self._lock = threading.Lock()
        self._db: Connection | None = None

    def transact(self, work: "Callable[[Connection], T]") -> T:
        """Return the result of `work`, all of which happens in one transaction.

        A connection that was lost while it was idle is opened again, once. Raises `Unavailable`.
        """
        with self._lock:
            try:
                if self._db is not None:
                    try:
                        self._db.execute("SELECT 1")
                    except self._psycopg.OperationalError:
                        self._drop()
                db = self._opened()
                with db.transaction():
                    return work(db)
            except self._psycopg.Error as error:
                if self._db is not None and (self._db.broken or self._db.closed):
                    self._drop()
                raise self._unavailable(error) from error

    def check(self) -> None:
        """Raise `Unavailable` unless the database can be used now; leave no connection open."""
        self.transact(lambda db: None)
        self.close()

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        with self._lock:
            self._drop()

    def _opened(self) -> "Connection":
        if self._db is None:
            options = f"-c statement_timeout={STATEMENT_MS} -c lock_timeout={LOCK_MS}"
            db = self._psycopg.connect(self._address, autocommit=True, options=options, **_SETTINGS)
            try:
                self._prepare(db)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _prepare(self, db: "Connection") -> None:
        """Make the tables, or check that they are of this version."""
        with db.transaction():
            db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            there = db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,))
            if there.fetchone() is None:
                db.execute(f"CREATE SCHEMA {SCHEMA}")
            db.execute(f"SET LOCAL search_path TO {SCHEMA}")
            db.execute("CREATE TABLE IF NOT EXISTS about (version integer NOT NULL)")
            found = db.execute("SELECT version FROM about").fetchone()
            if found is None:
                db.execute("INSERT INTO about VALUES (%s)", (VERSION,))
            elif found[0] != VERSION:
                raise self._psycopg.DatabaseError(
                    f"its tables have version {found[0]}, and this program reads version {VERSION}"
                )
            for statement in self._tables:
                db.execute(statement)
        db.execute(f"SET search_path TO {SCHEMA}")

    def _drop(self) -> None:
        if self._db is not None:
            with suppress(Exception):
                self._db.close()
        self._db = None

    def _unavailable(self, error: Exception) -> Unavailable:
        said = " ".join(str(error).split())[:300]
        return Unavailable(f"{shown(self._address)} cannot be used: {said}")


def shown(address: str) -> str:
    """Return an address without its password and its parameters, for messages."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else "that text"


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise Misconfigured(f"PostgreSQL needs psycopg ({error}): {install('postgres')}") from error
    return psycopg
