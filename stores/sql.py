"""One text of SQL for both kinds of database: what differs between them stands in braces.

Values are `?`. `{now}` is the time, and `{ago}` the time so many seconds before, which are a value.
`{lock}` behind a SELECT keeps its rows from changing until the transaction ends, and
`{lock_others}` also leaves out those that another process has locked.

SQLAlchemy's Core could do this. But it takes 0.3 seconds to import, and each statement takes about
ten times as long as by sqlite3 alone.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from caesura.stores.leases import Leases, PostgresLeases, SqliteLeases

if TYPE_CHECKING:
    from caesura.stores.postgres import Connection

Values = Sequence[Any]


class Result(Protocol):
    """What a statement returns."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        ...

    def fetchone(self) -> Any:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[Any]:
        """Return the rows that are left."""
        ...


class Sql(ABC):
    """A connection that takes the common text, within a transaction if its owner began one."""

    @property
    @abstractmethod
    def leases(self) -> Leases:
        """The leases of the same database."""

    @abstractmethod
    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""

    @abstractmethod
    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""


class SqliteSql(Sql):
    """A SQLite file's connection. Times are Unix times, by `clock`."""

    def __init__(self, db: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._db = db
        self._clock = clock
        db.create_function("caesura_now", 0, clock)

    @property
    def leases(self) -> Leases:
        """The leases of the same database."""
        return SqliteLeases(self._db, self._clock())

    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""
        return self._db.execute(_sqlite_text(text), values)

    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""
        self._db.executemany(_sqlite_text(text), rows)


class PostgresSql(Sql):
    """A PostgreSQL connection. Times are the database's."""

    def __init__(self, db: "Connection") -> None:
        self._db = db

    @property
    def leases(self) -> Leases:
        """The leases of the same database."""
        return PostgresLeases(self._db)

    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""
        return self._db.execute(_postgres_text(text), values)

    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""
        with self._db.cursor() as cursor:
            cursor.executemany(_postgres_text(text), rows)


@cache
def _sqlite_text(text: str) -> str:
    return text.format(now="caesura_now()", ago="caesura_now() - ?", lock="", lock_others="")


@cache
def _postgres_text(text: str) -> str:
    now = "clock_timestamp()"
    return text.format(
        now=now,
        ago=f"{now} - make_interval(secs => ?)",
        lock="FOR UPDATE",
        lock_others="FOR UPDATE SKIP LOCKED",
    ).replace("?", "%s")
