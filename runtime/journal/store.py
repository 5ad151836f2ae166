"""Where journals are kept: the port `JournalStore`, in a SQLite file, and in PostgreSQL.

Each run has one owner, the server that works on it. An owner holds a lease, which it renews. When
the lease has run out, another owner may claim the runs. So several servers can share one store,
and each run goes on in one of them at a time. All methods block; any thread may call them.
"""

import json
import logging
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from caesura.runtime.errors import usage_errors
from caesura.stores.leases import LEASE_SECONDS, PostgresLeases, SqliteLeases
from caesura.stores.postgres import Database, Misconfigured, Unavailable
from caesura.stores.sqlite import Schema, SqliteFile, is_broken, set_aside, transaction

if TYPE_CHECKING:
    from caesura.stores.postgres import Connection

T = TypeVar("T")

LOG = logging.getLogger(__name__)

MB = 2**20


class JournalUnavailable(Exception):
    """The store cannot be read or written now: a full disk, a lock, a lost connection.

    The message is one sentence. The same call may succeed later.
    """


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's journal."""

    run_id: str
    """The run's id, at most 200 characters of ASCII."""
    number: int
    """The entry's place in the run, from 0 without gaps. The entry 0 begins the run."""
    body: str
    """JSON text. A store keeps it as it is and never reads it."""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run in a store. Times are Unix times."""

    id: str
    began: float
    written: float
    """When its last entry was written."""
    is_held: bool
    """Whether a process works on it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a store keeps. The runs that began first are deleted first."""

    max_runs: int = 10_000
    max_bytes: int = 512 * MB
    """Bytes of the entries' text."""
    max_age_seconds: float = 7 * 24 * 3600.0
    """Seconds since a run's last entry."""

    def surplus(self, runs: Sequence[tuple[str, int, bool]]) -> list[str]:
        """Return the runs that must go; `runs` tells of each its bytes, and whether it is too old.

        Those that began first stand in front.
        """
        count, size = len(runs), sum(length for _, length, _ in runs)
        gone = []
        for run, length, is_old in runs:
            if is_old or count > self.max_runs or size > self.max_bytes:
                gone.append(run)
                count -= 1
                size -= length
        return gone


class JournalStore(Protocol):
    """Journals of runs, shared by owners. All methods block; any thread may call them.

    An owner is a name that no other process uses (`caesura.stores.leases.new_owner`). Times
    are the store's own, so that servers' clocks need not agree. Each method is atomic: after an
    error all of it was done or nothing, and doing it again is safe. The methods raise
    `JournalUnavailable`.
    """

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold (any more).

        Nothing is added to those: they were taken over, deleted or swept. An entry with number 0
        makes its run and gives it to `owner`, unless a run of that id exists. An entry that is
        there already stays as it is, so a batch can be sent again. With `durable`, what was added
        survives a power failure; otherwise it need only survive the end of the process.
        """
        ...

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        ...

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        ...

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, those that began first in front."""
        ...

    def claim(self, run_id: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it now.

        Of several that claim one run, one gets it. An owner that holds the run gets True.
        """
        ...

    def release(self, owner: str, run_id: str) -> None:
        """Let others claim a run that `owner` holds, at once."""
        ...

    def runs(self) -> "list[KeptRun]":
        """Return all runs, the one that was written last in front."""
        ...

    def load(self, run_id: str) -> list[str]:
        """Return the bodies of a run's entries in order; empty for an unknown run.

        Entries behind a missing number are empty texts, which cannot be read: the missing one may
        be that of a call, which would be made again.
        """
        ...

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""
        ...

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases that ran out long ago; return the runs.

        A run is deleted in any state, so bounds must leave room for those under way.
        """
        ...

    def close(self) -> None:
        """Give back connections; the next call opens them again."""
        ...


# -- in SQLite -------------------------------------------------------------------------------------

# `began` and `at` are Unix times. Entries come at their table's end, since pages that are changed
# are written as a whole.
_SCHEMA = Schema(
    version=2,
    tables=(
        "CREATE TABLE IF NOT EXISTS runs (number INTEGER PRIMARY KEY, id TEXT UNIQUE, owner TEXT,"
        " began REAL)",
        "CREATE INDEX IF NOT EXISTS by_begin ON runs (began)",
        "CREATE TABLE IF NOT EXISTS entries (run INTEGER, number INTEGER, at REAL, body TEXT,"
        " UNIQUE (run, number))",
        SqliteLeases.TABLE,
    ),
    settings=(),  # each write says whether it is durable
)
# One statement takes many rows, as JSON. Between two rows of its own, Python would wait for its
# lock, up to 5 ms each time while the event loop works.
_BEGIN = "INSERT OR IGNORE INTO runs (id, owner, began) SELECT value, ?, ? FROM json_each(?)"
_ADD = """
    INSERT OR IGNORE INTO entries SELECT runs.number, json_extract(given.value, '$[1]'), ?,
    json_extract(given.value, '$[2]') FROM json_each(?) AS given
    JOIN runs ON runs.id = json_extract(given.value, '$[0]') AND runs.owner = ?
"""
_HELD = "owner = ? AND id IN (SELECT value FROM json_each(?))"


class SqliteJournal:
    """A `JournalStore` in one file, which the processes of one machine may share.

    `path` None keeps it in memory. `clock` returns seconds since 1970. The file is opened at the
    first use, and again after it has failed or was deleted. A corrupt one is moved aside, unless
    the file has an `application` id of its own: then a user has chosen it by its name.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], float] = time.time, application: int = 0
    ) -> None:
        self.path = path
        self._clock = clock
        self._application = application
        self._file = SqliteFile(path, replace(_SCHEMA, application=application), self._opened)
        self._is_durable: bool | None = None

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold."""
        rows = json.dumps([(each.run_id, each.number, each.body) for each in entries])
        begun = [each.run_id for each in entries if each.number == 0]
        runs = {each.run_id for each in entries}

        def work(db: sqlite3.Connection) -> frozenset[str]:
            now = self._clock()
            self._set_durable(db, durable)
            with transaction(db) if begun else nullcontext():
                if begun:
                    db.execute(_BEGIN, (owner, now, json.dumps(begun)))
                added = db.execute(_ADD, (now, rows, owner)).rowcount
            if added == len(entries):
                return frozenset()
            held = db.execute(f"SELECT id FROM runs WHERE {_HELD}", (owner, json.dumps([*runs])))
            return frozenset(runs.difference(run for (run,) in held))

        return self._do(work)

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        self._do(lambda db: self._leases(db).renew(owner, seconds))

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        self._do(lambda db: self._leases(db).end(owner))

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, oldest first."""

        def work(db: sqlite3.Connection) -> list[str]:
            leases = self._leases(db)
            rows = db.execute("SELECT id, owner FROM runs ORDER BY began, id").fetchall()
            gone = {owner: leases.is_gone(owner) for owner in {row[1] for row in rows}}
            return [run for run, owner in rows if gone[owner]]

        return self._do(work)

    def claim(self, run_id: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it."""

        def work(db: sqlite3.Connection) -> bool:
            with transaction(db):
                row = db.execute("SELECT owner FROM runs WHERE id = ?", (run_id,)).fetchone()
                if row is None:
                    return False
                if row[0] == owner:
                    return True
                if not self._leases(db).is_gone(row[0]):
                    return False
                db.execute("UPDATE runs SET owner = ? WHERE id = ?", (owner, run_id))
                return True

        return self._do(work)

    def release(self, owner: str, run_id: str) -> None:
        """Let others claim a run that `owner` holds, at once."""
        query = "UPDATE runs SET owner = '' WHERE owner = ? AND id = ?"
        self._do(lambda db: db.execute(query, (owner, run_id)))

    def runs(self) -> list[KeptRun]:
        """Return all runs, the one that was written last in front."""
        query = (
            "SELECT id, began, coalesce(max(at), began) AS written, owner FROM runs"
            " LEFT JOIN entries ON run = runs.number GROUP BY runs.number ORDER BY written DESC, id"
        )

        def work(db: sqlite3.Connection) -> list[KeptRun]:
            leases = self._leases(db)
            rows = db.execute(query).fetchall()
            return [
                KeptRun(run, began, written, not leases.is_gone(owner))
                for run, began, written, owner in rows
            ]

        return self._do(work)

    def load(self, run_id: str) -> list[str]:
        """Return the bodies of a run's entries in order, empty from the first missing one on."""
        query = (
            "SELECT entries.number, body FROM entries JOIN runs ON run = runs.number"
            " WHERE id = ? ORDER BY entries.number"
        )
        rows = self._do(lambda db: db.execute(query, (run_id,)).fetchall())
        return [body if place == number else "" for place, (number, body) in enumerate(rows)]

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""

        def work(db: sqlite3.Connection) -> None:
            with transaction(db):
                values = (owner, json.dumps([*runs]))
                query = "DELETE FROM entries WHERE run IN (SELECT number FROM runs WHERE"
                db.execute(f"{query} {_HELD})", values)
                db.execute(f"DELETE FROM runs WHERE {_HELD}", values)

        self._do(work)

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases of owners without runs; return the runs."""

        def work(db: sqlite3.Connection) -> list[str]:
            now = self._clock()
            with transaction(db):
                query = (
                    "SELECT id, coalesce(sum(length(body)), 0), coalesce(max(at), began) < ?"
                    " FROM runs LEFT JOIN entries ON run = runs.number GROUP BY runs.number"
                    " ORDER BY began, id"
                )
                rows = db.execute(query, (now - bounds.max_age_seconds,)).fetchall()
                gone = bounds.surplus(rows)
                of_gone = (
                    "IN (SELECT number FROM runs WHERE id IN (SELECT value FROM json_each(?)))"
                )
                db.execute(f"DELETE FROM entries WHERE run {of_gone}", (json.dumps(gone),))
                db.execute(f"DELETE FROM runs WHERE number {of_gone}", (json.dumps(gone),))
                unused = "until < ? AND owner NOT IN (SELECT owner FROM runs)"
                db.execute(f"DELETE FROM leases WHERE {unused}", (now - LEASE_SECONDS,))
            return gone

        return self._do(work)

    def close(self) -> None:
        """Close the file; the next call opens it again. What is in memory stays."""
        if self.path is not None:
            self._file.close()

    def _leases(self, db: sqlite3.Connection) -> SqliteLeases:
        return SqliteLeases(db, self._clock())

    def _opened(self, db: sqlite3.Connection) -> None:
        self._is_durable = None

    def _set_durable(self, db: sqlite3.Connection, durable: bool) -> None:
        if durable is not self._is_durable:
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._file.is_replaced:
            self._file.close()
        try:
            with self._file.using() as db:
                return work(db)
        except (sqlite3.Error, OSError) as error:
            if self.path is None:
                raise JournalUnavailable(f"the journal in memory failed: {error}") from error
            self._file.close()
            if is_broken(error) and not self._application:
                self._set_aside(self.path, error)
            raise JournalUnavailable(f"{self.path} cannot be used: {error}") from error

    def _set_aside(self, path: Path, error: BaseException) -> None:
        with suppress(OSError):
            aside = set_aside(path)
            LOG.warning("%s is no journal and was moved to %s: %s", path, aside, error)


# -- in PostgreSQL ---------------------------------------------------------------------------------

_NOW = "clock_timestamp()"


def _postgres_tables(name: str) -> tuple[str, ...]:
    """Return what makes the tables of one kind of journals.

    `number` orders the runs by their beginnings, `bytes` is the size of the entries' texts.
    """
    return (
        f"CREATE TABLE IF NOT EXISTS {name}_runs (id text PRIMARY KEY, owner text NOT NULL,"
        f" number bigint GENERATED ALWAYS AS IDENTITY, began timestamptz NOT NULL DEFAULT {_NOW},"
        " used timestamptz NOT NULL, bytes bigint NOT NULL DEFAULT 0)",
        f"CREATE INDEX IF NOT EXISTS {name}_runs_by_number ON {name}_runs (number)",
        f"CREATE TABLE IF NOT EXISTS {name}_entries (number integer,"
        f" run text REFERENCES {name}_runs ON DELETE CASCADE, body text NOT NULL,"
        " PRIMARY KEY (run, number))",
        PostgresLeases.TABLE,
    )


class PostgresJournal:
    """A `JournalStore` in a PostgreSQL database. Times are the database's.

    What is written without `durable` survives the end of this process and of its machine, but a
    crash of the database may lose the last half second. `name` begins the names of the tables:
    journals of another kind have others. Raises `UsageError` without psycopg.
    """

    def __init__(self, address: str, name: str = "journal") -> None:
        self._name = name
        with usage_errors(Misconfigured):
            self._database = Database(address, _postgres_tables(name))

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold."""
        by_run: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            by_run[entry.run_id].append(entry)

        def work(db: "Connection") -> frozenset[str]:
            db.execute(f"SET LOCAL synchronous_commit = {'on' if durable else 'off'}")
            # In one order, so that no two servers wait for each other.
            held = [run for run in sorted(by_run) if self._take(db, owner, run, by_run[run])]
            for run in held:
                self._add(db, run, by_run[run])
            return frozenset(by_run) - frozenset(held)

        return self._do(work)

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        self._do(lambda db: PostgresLeases(db).renew(owner, seconds))

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        self._do(lambda db: PostgresLeases(db).end(owner))

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, oldest first."""

        def work(db: "Connection") -> list[str]:
            rows = db.execute(f"SELECT id, owner FROM {self._name}_runs ORDER BY number").fetchall()
            leases = PostgresLeases(db)
            gone = {owner: leases.is_gone(owner) for owner in {owner for _, owner in rows}}
            return [run for run, owner in rows if gone[owner]]

        return self._do(work)

    def claim(self, run_id: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it."""

        def work(db: "Connection") -> bool:
            row = db.execute(
                f"SELECT owner FROM {self._name}_runs WHERE id = %s FOR UPDATE", (run_id,)
            ).fetchone()
            if row is None:
                return False
            if row[0] == owner:
                return True
            if not PostgresLeases(db).is_gone(row[0]):
                return False
            db.execute(f"UPDATE {self._name}_runs SET owner = %s WHERE id = %s", (owner, run_id))
            return True

        return self._do(work)

    def release(self, owner: str, run_id: str) -> None:
        """Let others claim a run that `owner` holds, at once."""
        query = f"UPDATE {self._name}_runs SET owner = '' WHERE owner = %s AND id = %s"
        self._do(lambda db: db.execute(query, (owner, run_id)))

    def runs(self) -> list[KeptRun]:
        """Return all runs, the one that was written last in front."""
        query = (
            "SELECT id, extract(epoch FROM began)::float8, extract(epoch FROM used)::float8, owner"
            f" FROM {self._name}_runs ORDER BY used DESC, id"
        )

        def work(db: "Connection") -> list[KeptRun]:
            leases = PostgresLeases(db)
            rows = db.execute(query).fetchall()
            return [
                KeptRun(run, began, written, not leases.is_gone(owner))
                for run, began, written, owner in rows
            ]

        return self._do(work)

    def load(self, run_id: str) -> list[str]:
        """Return the bodies of a run's entries in order, empty from the first missing one on."""
        query = f"SELECT number, body FROM {self._name}_entries WHERE run = %s ORDER BY number"
        rows = self._do(lambda db: db.execute(query, (run_id,)).fetchall())
        return [body if place == number else "" for place, (number, body) in enumerate(rows)]

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""
        query = f"DELETE FROM {self._name}_runs WHERE owner = %s AND id = ANY(%s)"
        self._do(lambda db: db.execute(query, (owner, list(runs))))

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases of owners without runs; return the runs."""

        def work(db: "Connection") -> list[str]:
            rows = db.execute(
                f"SELECT id, bytes, used < {_NOW} - make_interval(secs => %s)"
                f" FROM {self._name}_runs ORDER BY number FOR UPDATE",
                (bounds.max_age_seconds,),
            ).fetchall()
            gone = bounds.surplus(rows)
            db.execute(f"DELETE FROM {self._name}_runs WHERE id = ANY(%s)", (gone,))
            db.execute(
                f"DELETE FROM leases WHERE owner NOT IN (SELECT owner FROM {self._name}_runs)"
                f" AND until < {_NOW} - make_interval(secs => %s)",
                (LEASE_SECONDS,),
            )
            return gone

        return self._do(work)

    def close(self) -> None:
        """Give the connection back; the next call opens another one."""
        self._database.close()

    def _do(self, work: "Callable[[Connection], T]") -> T:
        try:
            return self._database.transact(work)
        except Unavailable as error:
            raise JournalUnavailable(str(error)) from error

    def _take(self, db: "Connection", owner: str, run_id: str, entries: Sequence[Entry]) -> bool:
        """Return whether the owner holds the run, which is made if its first entry is there."""
        if any(entry.number == 0 for entry in entries):
            db.execute(
                f"INSERT INTO {self._name}_runs (id, owner, used) VALUES (%s, %s, {_NOW})"
                " ON CONFLICT DO NOTHING",
                (run_id, owner),
            )
        row = db.execute(
            f"SELECT owner FROM {self._name}_runs WHERE id = %s FOR UPDATE", (run_id,)
        ).fetchone()
        return row is not None and row[0] == owner

    def _add(self, db: "Connection", run_id: str, entries: Sequence[Entry]) -> None:
        added = db.execute(
            f"WITH added AS (INSERT INTO {self._name}_entries (run, number, body)"
            " SELECT %s, * FROM unnest(%s::integer[], %s::text[])"
            " ON CONFLICT DO NOTHING RETURNING octet_length(body) AS size)"
            " SELECT coalesce(sum(size), 0)::bigint FROM added",
            (run_id, [entry.number for entry in entries], [entry.body for entry in entries]),
        ).fetchone()
        assert added is not None
        db.execute(
            f"UPDATE {self._name}_runs SET used = {_NOW}, bytes = bytes + %s WHERE id = %s",
            (added[0], run_id),
        )
