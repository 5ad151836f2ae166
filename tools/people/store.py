"""The pending items in their file, and their changes of state.

Each change is one statement that names the states it starts from. So of two concurrent answers
the first wins, even from different threads or processes. While the file fails, the items go on in
memory. All methods block.
"""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from caesura.stores.leases import SqliteLeases, new_owner
from caesura.stores.sqlite import PAGE_BYTES, Column, Schema, SqliteFile, transaction
from caesura.tools.people.pending import UNSETTLED, NoAnswer, Pending, State

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""How long to wait before a file that failed is tried again."""
MAX_BYTES = 64 * 2**20

ITEM = tuple(field.name for field in fields(Pending))
# `identity` recognises the same question asked again. `taken` tells whether a run has the
# answer: 0 no, 1 a run that goes on, 2 a run that has ended, 3 not yet, but it is for the run of
# the owner alone, which another process answered.
COLUMNS = (*ITEM, "identity", "owner", "taken")
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
INSERT = f"INSERT INTO items ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
_SCHEMA = Schema(
    version=1,
    tables=(
        f'CREATE TABLE IF NOT EXISTS items ({_NAMES}, PRIMARY KEY ("id"))',
        'CREATE INDEX IF NOT EXISTS by_identity ON items ("identity")',
        'CREATE INDEX IF NOT EXISTS by_state ON items ("state")',
        SqliteLeases.TABLE,
    ),
    # The items of files of before it are nobody's. Both ways can be read.
    columns=(Column("items", "tenant", "DEFAULT ''"),),
)

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
        self._file = _file(path, max_bytes)
        """The file, or memory while it fails."""
        self._retry_at = 0.0
        self._before: dict[str, Row] = {}
        """The rows that came from the file into memory, by id."""

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work` on the file, or on memory if the file fails."""
        with self._lock:
            if self.trouble is not None and self._clock() >= self._retry_at:
                self._come_back()
            try:
                if self._file.is_replaced:
                    self._write_again()
                with self._file.using() as db:
                    return work(db)
            except (sqlite3.Error, OSError) as error:
                if self._path is None or self.trouble is not None:
                    raise
                self._fall_back(error)
                with self._file.using() as db:
                    return work(db)

    def close(self) -> None:
        """Close the file; the next use opens it again. Items in memory stay."""
        with self._lock:
            if self._path is not None and self.trouble is None:
                self._file.close()

    def _write_again(self) -> None:
        """Put the items of a file that was deleted, and is still open, into a new one."""
        logger.warning("%s was deleted or replaced: its questions are written again", self._path)
        new = _file(self._path, self._max_bytes)
        try:
            with self._file.using() as deleted, new.using() as db:
                _put(db, _rows(deleted), replace=False)
        except BaseException:
            new.close()
            raise
        self._file.close()
        self._file = new

    def _fall_back(self, error: Exception) -> None:
        self.trouble = f"{self._path} cannot be used: {error}"
        self._retry_at = self._clock() + RETRY_SECONDS
        logger.warning(
            "pending questions are kept in memory until the file can be used again, and are lost "
            "if the process ends before: %s",
            self.trouble,
        )
        file, self._file = self._file, _file(None, MAX_BYTES)
        self._before = {}
        if file.is_open:
            try:
                with file.using() as db:
                    rows = list(_rows(db))
                with self._file.using() as memory:
                    _put(memory, rows, replace=False)
                self._before = {row[0]: row for row in rows}
            except sqlite3.Error as lost:
                logger.warning("earlier questions are not seen meanwhile: %s", lost)
            file.close()

    def _come_back(self) -> None:
        """Use the file again, with what has changed in memory, if it works now."""
        file = _file(self._path, self._max_bytes)
        try:
            with file.using() as db, self._file.using() as memory:
                changed = [row for row in _rows(memory) if self._before.get(row[0]) != row]
                _put(db, changed, replace=True)
        except (sqlite3.Error, OSError):
            file.close()
            self._retry_at = self._clock() + RETRY_SECONDS
            return
        self._file.close()
        self._file = file
        self.trouble = None
        self._before = {}
        logger.warning("%s can be used again; nothing was lost", self._path)


def _file(path: Path | None, max_bytes: int) -> SqliteFile:
    pages = f"PRAGMA max_page_count = {max(1, max_bytes // PAGE_BYTES)}"
    return SqliteFile(path, replace(_SCHEMA, settings=(pages,)), _with_names)


def _with_names(db: sqlite3.Connection) -> None:
    db.row_factory = sqlite3.Row


def _rows(db: sqlite3.Connection) -> Iterable[Row]:
    return [tuple(row) for row in db.execute(f"SELECT {_NAMES} FROM items")]


def _put(db: sqlite3.Connection, rows: Iterable[Row], *, replace: bool) -> None:
    """Write rows in one transaction; an answer that the file has stays."""
    way = "REPLACE" if replace else "IGNORE"
    statement = INSERT.replace("INSERT", f"INSERT OR {way}", 1)
    state = COLUMNS.index("state")
    with transaction(db):
        for row in rows:
            found = db.execute('SELECT "state" FROM items WHERE "id" = ?', (row[0],)).fetchone()
            settled = found is not None and found[0] not in UNSETTLED
            if not (settled and row[state] in UNSETTLED):
                db.execute(statement, row)


class Store:
    """The items of all users of a file; those of users that have ended are orphaned.

    A user that renews its lease (`renew`) counts as alive, wherever it runs. path: None keeps the
    items in memory.
    """

    def __init__(
        self, path: Path | None, *, max_items: int = 1000, max_bytes: int = MAX_BYTES
    ) -> None:
        self.owner = new_owner()
        self.is_shared = path is not None
        """Whether other processes may answer our items."""
        self._db = Database(path, max_bytes)
        self._max_items = max_items

    @property
    def trouble(self) -> str | None:
        """Why the items are in memory and not in the file; None: no problem."""
        return self._db.trouble

    def claim(self, item: Pending, identity: str, refused: str = "") -> Pending:
        """Store an item that a run waits for, or return the known one for the same question.

        An answer that no run has had is returned once. An orphaned item becomes ours: open, with
        this session and deadline. Raises NoAnswer where too many items are open, and for a new item
        if `refused` says why its client may open none.
        """
        known = self._find(identity, item) if identity else None
        if known is not None:
            return known
        if refused:
            raise NoAnswer(refused)
        count = f'SELECT count(*) FROM items WHERE "state" IN ({_placeholders(UNSETTLED)})'
        if self._db.run(lambda db: db.execute(count, UNSETTLED).fetchone()[0]) >= self._max_items:
            raise NoAnswer("too many questions wait for people; continue without an answer")
        values = {**_row(item), "identity": identity, "owner": self.owner, "taken": 0}
        self._db.run(lambda db: db.execute(INSERT, list(values.values())))
        return item

    def settle(
        self,
        item_id: str,
        state: State,
        *,
        answer: str | None = None,
        approved: bool | None = None,
        who: str = "",
        taken: bool = False,
        of: Collection[State] = UNSETTLED,
    ) -> Pending | None:
        """Change an item from a state in `of` and return it; None: it is in another state.

        Another live user's open item can be answered, which that user finds by `news`. taken: the
        waiting run has the answer.
        """
        theirs = '"state" = \'open\' AND "owner" != ?'
        change = (
            'UPDATE items SET "state" = ?, "answer" = ?, "approved" = ?, "who" = ?,'
            f' "taken" = CASE WHEN {theirs} THEN 3 ELSE ? END'
            f' WHERE "id" = ? AND "state" IN ({_placeholders(of)})'
            f" AND (? = 'answered' OR NOT ({theirs})) RETURNING *"
        )
        said = (state, answer, approved, who, self.owner, int(taken))
        return self._one(change, (*said, item_id, *of, state, self.owner))

    def news(self, ids: Collection[str]) -> list[Pending]:
        """Return those of our open items that another user has settled, and take their answers.

        An item that another user took for orphaned becomes ours again.
        """
        chosen = f'"id" IN ({_placeholders(ids)}) AND "owner" = ?'
        values = (*ids, self.owner)
        again = f"UPDATE items SET \"state\" = 'open' WHERE \"state\" = 'orphaned' AND {chosen}"
        self._db.run(lambda db: db.execute(again, values))
        self._db.run(
            lambda db: db.execute(
                f'UPDATE items SET "taken" = 1 WHERE "taken" = 3 AND {chosen}', values
            )
        )
        query = f"SELECT * FROM items WHERE \"state\" != 'open' AND {chosen}"
        return self._all(query, values)

    def renew(self, now: float) -> None:
        """Let this user count as alive for a while."""
        self._db.run(lambda db: SqliteLeases(db, now).renew(self.owner))

    def get(self, item_id: str) -> Pending | None:
        """Return the item of that id, or None."""
        return self._one('SELECT * FROM items WHERE "id" = ?', (item_id,))

    def listed(self, states: Collection[State]) -> list[Pending]:
        """Return items in these states, oldest first, also those of other users."""
        query = f'SELECT * FROM items WHERE "state" IN ({_placeholders(states)})'
        return self._all(f'{query} ORDER BY "created", "id"', states)

    def finish(self, session_id: str) -> None:
        """Mark the answers of an ended session as used, so that they are not returned again."""
        change = 'UPDATE items SET "taken" = 2 WHERE "session" = ? AND "taken" = 1'
        self._db.run(lambda db: db.execute(change, (session_id,)))

    def next_deadline(self) -> float | None:
        """Return the earliest deadline of an orphaned item."""
        query = 'SELECT min("deadline") FROM items WHERE "state" = \'orphaned\''
        found = self._db.run(lambda db: db.execute(query).fetchone()[0])
        return None if found is None else float(found)

    def sweep(self, now: float, oldest: float) -> list[Pending]:
        """Orphan the items of ended processes, expire items, delete old ones; return the changed.

        Settled items created before `oldest` are deleted, and the oldest beyond the number of
        items to keep.
        """
        changed = [item for owner in self._gone(now) for item in self._orphan(owner)]
        expire = (
            'UPDATE items SET "state" = \'expired\', "answer" = "default"'
            ' WHERE "state" = \'orphaned\' AND "deadline" <= ? RETURNING *'
        )
        changed += self._all(expire, (now,))
        settled = f'"state" NOT IN ({_placeholders(UNSETTLED)})'
        surplus = (
            f'DELETE FROM items WHERE {settled} AND ("created" < ? OR "id" NOT IN (SELECT "id"'
            f' FROM items WHERE {settled} ORDER BY "created" DESC LIMIT ?))'
        )
        values = (*UNSETTLED, oldest, *UNSETTLED, self._max_items)
        self._db.run(lambda db: db.execute(surplus, values))
        return changed

    def leave(self) -> list[Pending]:
        """Orphan our open items before our runs end, so that they can still be answered."""
        orphaned = self._orphan(self.owner)
        self._db.run(lambda db: SqliteLeases(db, 0.0).end(self.owner))
        return orphaned

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._db.close()

    def _find(self, identity: str, item: Pending) -> Pending | None:
        return self._one(
            'UPDATE items SET "taken" = 1, "session" = ?, "owner" = ? WHERE "id" = (SELECT "id"'
            ' FROM items WHERE "identity" = ? AND "state" = \'answered\' AND "taken" = 0 LIMIT 1)'
            " RETURNING *",
            (item.session, self.owner, identity),
        ) or self._one(
            'UPDATE items SET "state" = \'open\', "owner" = ?, "session" = ?, "deadline" = ?'
            ' WHERE "id" = (SELECT "id" FROM items WHERE "identity" = ? AND "state" = \'orphaned\''
            " LIMIT 1) RETURNING *",
            (self.owner, item.session, item.deadline, identity),
        )

    def _gone(self, now: float) -> list[str]:
        """Return the other users of the file that have ended and left items."""
        query = 'SELECT DISTINCT "owner" FROM items WHERE "state" = \'open\' OR "taken" IN (1, 3)'

        def gone(db: sqlite3.Connection) -> list[str]:
            owners = [row[0] for row in db.execute(query) if row[0] != self.owner]
            leases = SqliteLeases(db, now)
            return [owner for owner in owners if leases.is_gone(owner)]

        return self._db.run(gone)

    def _orphan(self, owner: str) -> list[Pending]:
        # An answer to a question can serve the run that asks again after its own run died. An
        # approval can if its run has not read it: otherwise its call may have been made.
        again = (
            'UPDATE items SET "taken" = CASE WHEN "kind" = \'question\' OR "taken" = 3 THEN 0'
            ' ELSE 2 END WHERE "owner" = ? AND "taken" IN (1, 3)'
        )
        self._db.run(lambda db: db.execute(again, (owner,)))
        # An approval without an identity cannot match any later run.
        change = (
            'UPDATE items SET "state" = CASE WHEN "kind" = \'approval\' AND "identity" = \'\''
            " THEN 'cancelled' ELSE 'orphaned' END"
            ' WHERE "owner" = ? AND "state" = \'open\' RETURNING *'
        )
        return self._all(change, (owner,))

    def _one(self, statement: str, values: Iterable[Any]) -> Pending | None:
        found = self._all(statement, values)
        return found[0] if found else None

    def _all(self, statement: str, values: Iterable[Any]) -> list[Pending]:
        return self._db.run(lambda db: [_item(row) for row in db.execute(statement, tuple(values))])


def _row(item: Pending) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ITEM} | {"options": json.dumps(item.options)}


def _item(row: sqlite3.Row) -> Pending:
    data = {name: row[name] for name in ITEM}
    data["options"] = tuple(json.loads(data["options"]))
    data["tenant"] = data["tenant"] or ""  # a program of before the column leaves it out
    data["approved"] = None if data["approved"] is None else bool(data["approved"])
    return Pending(**data)


def _placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
