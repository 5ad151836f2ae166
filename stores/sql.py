"""One text of SQL for both kinds of database: what differs between them stands in braces.

Values are `?`. `{now}` is the time, and `{ago}` the time so many seconds before, which are a value.
`{lock}` behind a SELECT keeps its rows from changing until the transaction ends, and
`{lock_others}` also leaves out those that somebody else has locked.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
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

    leases: Leases
    """The leases of the same database."""

    @abstractmethod
    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""

    @abstractmethod
    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""


class SqliteSql(Sql):
    """A SQLite file's connection. `now` is the Unix time, and times are such numbers."""

    def __init__(self, db: sqlite3.Connection, now: float) -> None:
        self.leases = SqliteLeases(db, now)
        self._db = db
        self._words = {"now": repr(now), "ago": f"{now!r} - ?", "lock": "", "lock_others": ""}

    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""
        return self._db.execute(text.format(**self._words), values)

    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""
        self._db.executemany(text.format(**self._words), rows)


_POSTGRES_WORDS = {
    "now": "clock_timestamp()",
    "ago": "clock_timestamp() - make_interval(secs => ?)",
    "lock": "FOR UPDATE",
    "lock_others": "FOR UPDATE SKIP LOCKED",
}


class PostgresSql(Sql):
    """A PostgreSQL connection. Times are the database's."""

    def __init__(self, db: "Connection") -> None:
        self.leases = PostgresLeases(db)
        self._db = db

    def execute(self, text: str, values: Values = ()) -> Result:
        """Run one statement."""
        return self._db.execute(_postgres_text(text), values)

    def many(self, text: str, rows: Sequence[Values]) -> None:
        """Run one statement with each of the rows."""
        with self._db.cursor() as cursor:
            cursor.executemany(_postgres_text(text), rows)


def _postgres_text(text: str) -> str:
    return text.format(**_POSTGRES_WORDS).replace("?", "%s")
