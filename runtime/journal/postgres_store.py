"""Journals in PostgreSQL, which servers on many machines share. All methods block."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from caesura.runtime.journal.store import LEASE_SECONDS, Bounds, Entry, JournalUnavailable
from caesura.runtime.postgres import leases
from caesura.runtime.postgres.database import Database, Unavailable

if TYPE_CHECKING:
    from caesura.runtime.postgres.database import Connection

T = TypeVar("T")

# `number` orders the runs by their beginnings, `bytes` is the size of the entries' texts.
_TABLES = (
    "CREATE TABLE IF NOT EXISTS journal_runs (id text PRIMARY KEY, owner text NOT NULL,"
    " number bigint GENERATED ALWAYS AS IDENTITY, used timestamptz NOT NULL,"
    " bytes bigint NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS journal_runs_by_number ON journal_runs (number)",
    "CREATE TABLE IF NOT EXISTS journal_entries (number integer,"
    " run text REFERENCES journal_runs ON DELETE CASCADE, body text NOT NULL,"
    " PRIMARY KEY (run, number))",
    leases.TABLE,
)
_NOW = "clock_timestamp()"


class PostgresJournal:
    """A `JournalStore` in a PostgreSQL database. Times are the database's.

    What is written without `durable` survives the end of this process and of its machine, but a
    crash of the database may lose the last half second. Raises `UsageError` without psycopg.
    """

    def __init__(self, address: str) -> None:
        self._database = Database(address, _TABLES)

    def append(
        self, owner: str, entries: Sequence[Entry], *, durable: bool = False
    ) -> frozenset[str]:
        """Add entries to runs of `owner`; return the runs that it does not hold."""
        by_run: dict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            by_run[entry.run].append(entry)

        def work(db: "Connection") -> frozenset[str]:
            db.execute(f"SET LOCAL synchronous_commit = {'on' if durable else 'off'}")
            # In one order, so that no two servers wait for each other.
            held = [run for run in sorted(by_run) if _take(db, owner, run, by_run[run])]
            for run in held:
                _add(db, run, by_run[run])
            return frozenset(by_run) - frozenset(held)

        return self._do(work)

    def renew(self, owner: str, seconds: float = LEASE_SECONDS) -> None:
        """Let `owner` count as alive for so many seconds from now."""
        self._do(lambda db: leases.renew(db, owner, seconds))

    def leave(self, owner: str) -> None:
        """End the owner's lease, so that others can claim its runs at once."""
        self._do(lambda db: leases.end(db, owner))

    def left_behind(self) -> list[str]:
        """Return the runs whose owners have no lease any more, oldest first."""

        def work(db: "Connection") -> list[str]:
            rows = db.execute("SELECT id, owner FROM journal_runs ORDER BY number").fetchall()
            gone = {owner: leases.is_gone(db, owner) for owner in {owner for _, owner in rows}}
            return [run for run, owner in rows if gone[owner]]

        return self._do(work)

    def claim(self, run: str, owner: str) -> bool:
        """Take over a run whose owner has no lease any more; return whether `owner` holds it."""

        def work(db: "Connection") -> bool:
            row = db.execute(
                "SELECT owner FROM journal_runs WHERE id = %s FOR UPDATE", (run,)
            ).fetchone()
            if row is None:
                return False
            if row[0] == owner:
                return True
            if not leases.is_gone(db, row[0]):
                return False
            db.execute("UPDATE journal_runs SET owner = %s WHERE id = %s", (owner, run))
            return True

        return self._do(work)

    def load(self, run: str) -> list[str]:
        """Return the bodies of a run's entries in order, empty from the first missing one on."""
        query = "SELECT number, body FROM journal_entries WHERE run = %s ORDER BY number"
        rows = self._do(lambda db: db.execute(query, (run,)).fetchall())
        return [body if place == number else "" for place, (number, body) in enumerate(rows)]

    def delete(self, owner: str, runs: Collection[str]) -> None:
        """Delete those of the runs that `owner` holds."""
        query = "DELETE FROM journal_runs WHERE owner = %s AND id = ANY(%s)"
        self._do(lambda db: db.execute(query, (owner, list(runs))))

    def sweep(self, bounds: Bounds) -> list[str]:
        """Delete runs beyond the bounds, and leases of owners without runs; return the runs."""

        def work(db: "Connection") -> list[str]:
            rows = db.execute(
                f"SELECT id, bytes, used < {_NOW} - make_interval(secs => %s) FROM journal_runs"
                " ORDER BY number FOR UPDATE",
                (bounds.max_age_seconds,),
            ).fetchall()
            gone = bounds.surplus(rows)
            db.execute("DELETE FROM journal_runs WHERE id = ANY(%s)", (gone,))
            db.execute(
                "DELETE FROM leases WHERE owner NOT IN (SELECT owner FROM journal_runs)"
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


def _take(db: "Connection", owner: str, run: str, entries: Sequence[Entry]) -> bool:
    """Return whether the owner holds the run, which is made if its first entry is there."""
    if any(entry.number == 0 for entry in entries):
        db.execute(
            f"INSERT INTO journal_runs (id, owner, used) VALUES (%s, %s, {_NOW})"
            " ON CONFLICT DO NOTHING",
            (run, owner),
        )
    row = db.execute("SELECT owner FROM journal_runs WHERE id = %s FOR UPDATE", (run,)).fetchone()
    return row is not None and row[0] == owner


def _add(db: "Connection", run: str, entries: Sequence[Entry]) -> None:
    added = db.execute(
        "WITH added AS (INSERT INTO journal_entries (run, number, body)"
        " SELECT %s, * FROM unnest(%s::integer[], %s::text[])"
        " ON CONFLICT DO NOTHING RETURNING octet_length(body) AS size)"
        " SELECT coalesce(sum(size), 0)::bigint FROM added",
        (run, [entry.number for entry in entries], [entry.body for entry in entries]),
    ).fetchone()
    assert added is not None
    db.execute(
        f"UPDATE journal_runs SET used = {_NOW}, bytes = bytes + %s WHERE id = %s",
        (added[0], run),
    )
