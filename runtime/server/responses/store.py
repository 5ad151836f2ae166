"""Responses and conversations that are kept, bounded in number, size and age: `ResponseStore`.

One text of SQL keeps them in a SQLite file and in PostgreSQL, which several servers share.
All methods block; any thread may call them.
"""

import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from caesura.runtime.errors import UsageError, usage_errors
from caesura.runtime.server.keys.key import Reach
from caesura.scheduler.messages import Message
from caesura.stores.leases import PostgresLeases, SqliteLeases, new_owner
from caesura.stores.postgres import Database, Misconfigured, Unavailable
from caesura.stores.sql import PostgresSql, Sql, SqliteSql
from caesura.stores.sqlite import Column, Schema, SqliteFile, transaction

T = TypeVar("T")

Item = dict[str, Any]
"""An item as JSON-able data; `type` names its kind."""
MB = 2**20
DAY_SECONDS = 24 * 3600.0


class NotStored(Exception):
    """Nothing is stored under an id; `missing` is that id, perhaps of an earlier response."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"nothing is stored under {missing[:80]!r}")
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that the store keeps. What was used least recently is deleted first."""

    max_records: int = 100_000
    """Responses and conversations together."""
    max_bytes: int = 512 * MB
    """Bytes of their text, without the file's own overhead."""
    max_age_seconds: float = 30 * DAY_SECONDS
    """Seconds since the last use."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One response as it is kept.

    `messages` are the chat messages of its input and of its run, without instructions. With those
    of the earlier responses they are the history of the next one.
    """

    resource: dict[str, Any]
    """The response object without its output."""
    input: Sequence[Item] = ()
    output: Sequence[Item] = ()
    messages: Sequence[Message] = ()
    covers_previous: bool = False
    """Whether `messages` begin with those of the previous response, whose run went on in this."""
    tenant: str = ""
    """The digest of the API key that it belongs to; empty if nobody's."""

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.resource["id"])

    @property
    def previous(self) -> str | None:
        """The id of the response that this one continues."""
        return self.resource.get("previous_response_id")

    @property
    def conversation(self) -> str | None:
        """The id of the response's conversation."""
        told = self.resource.get("conversation")
        return None if told is None else str(told["id"])

    def public(self) -> dict[str, Any]:
        """Return the response object."""
        return self.resource | {"output": list(self.output)}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, str] = field(default_factory=dict)
    tenant: str = ""
    """The digest of the API key that it belongs to; empty if nobody's."""

    def public(self) -> dict[str, Any]:
        """Return OpenAI's conversation object."""
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created_at,
            "metadata": self.metadata,
        }


def history_of(chain: Sequence[Stored]) -> list[Message]:
    """Return the chat messages of a chain of responses, the earliest first."""
    parts: list[Sequence[Message]] = []
    for stored in chain:
        if stored.covers_previous and parts:
            parts.pop()
        parts.append(stored.messages)
    return [message for part in parts for message in part]


class StoreUnavailable(Exception):
    """The store cannot be read or written now. The message is one sentence that says why."""


UNUSABLE = (sqlite3.Error, UsageError, StoreUnavailable)
"""What a store raises that cannot be used now."""


RESPONSE, CONVERSATION = "response", "conversation"
SWEEP_EVERY = 64
"""The number of writes between two searches for records beyond the bounds."""
SWEEP_SHARE = 1 / 32
"""The share of the records that is deleted at once to make room."""
STOPPED = {
    "code": "server_error",
    "message": "The server stopped before the response was complete.",
}
_WITHIN = "(CAST(? AS text) IS NULL OR tenant = ?)"
"""The condition that a record is within reach, which is given twice."""
_UNFINISHED = "status IN ('queued', 'in_progress')"
_FINAL = ("completed", "incomplete", "cancelled")


class ResponseStore(ABC):
    """Responses and conversations. The methods raise one of `UNUSABLE`.

    They raise `NotStored` for an id without a record within `reach`. Responses that ended servers
    left unfinished become failed ones at the first use.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._owner = new_owner()
        self._writes = 0

    # -- responses -------------------------------------------------------------------------------

    def put(self, stored: Stored) -> None:
        """Keep a response, in place of an earlier state of it that is not final.

        A final state also joins the response's conversation, if that still exists.
        """
        resource = {key: value for key, value in stored.resource.items() if key != "output"}
        body = json.dumps(resource)
        messages = json.dumps([stored.covers_previous, list(stored.messages)])
        status = resource["status"]
        items = _rows(stored.id, "input", stored.input) + _rows(stored.id, "output", stored.output)
        size = len(body) + len(messages) + _size(items)
        row = (stored.id, RESPONSE, stored.previous, status, self._owner)

        def work(db: Sql) -> None:
            known = _status(db, stored.id)
            if known in _FINAL:
                return  # a run that went on after a restart ends its earlier responses again
            if known is not None:
                self._forget(db, [stored.id])
            db.execute(
                "INSERT INTO records VALUES (?, ?, ?, ?, ?, {now}, ?, ?, ?, ?)",
                (*row, size, body, messages, stored.tenant),
            )
            _insert(db, items)
            if stored.conversation is not None and status in ("completed", "incomplete"):
                _extend(db, stored.conversation, [*stored.input, *stored.output])

        self._write(work)
        self._make_room()

    def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response."""
        return self._read(lambda db: _response(db, response_id, reach))

    def chain(self, response_id: str, reach: Reach) -> list[Stored]:
        """Return a response behind all that it continues, the earliest first.

        All of them count as used. Raises `NotStored` also for an earlier response that is missing.
        """

        def work(db: Sql) -> list[Stored]:
            found: list[Stored] = []
            following: str | None = response_id
            while following is not None:
                found.append(_response(db, following, reach))
                following = found[-1].previous
            db.many("UPDATE records SET used = {now} WHERE id = ?", [(each.id,) for each in found])
            return found[::-1]

        return self._write(work)

    def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response with its items."""
        self._write(lambda db: self._delete(db, response_id, RESPONSE, reach))

    def item(self, item_id: str, reach: Reach) -> Item:
        """Return the item of that id, of any response or conversation."""
        query = (
            "SELECT items.body FROM items JOIN records ON records.id = record"
            f" WHERE items.id = ? AND {_WITHIN} LIMIT 1"
        )
        row = self._read(lambda db: db.execute(query, (item_id, reach, reach)).fetchone())
        if row is None:
            raise NotStored(item_id)
        item: Item = json.loads(row[0])
        return item

    # -- conversations ---------------------------------------------------------------------------

    def put_conversation(self, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Keep a conversation, or its changed metadata; `items` join its items.

        A conversation that is there stays with its tenant.
        """
        body = json.dumps(conversation.public())

        def work(db: Sql) -> None:
            db.execute(
                "INSERT INTO records VALUES (?, ?, NULL, '', '', {now}, ?, ?, '[]', ?)"
                " ON CONFLICT (id) DO UPDATE SET body = excluded.body, used = excluded.used",
                (conversation.id, CONVERSATION, len(body), body, conversation.tenant),
            )
            _extend(db, conversation.id, items)

        self._write(work)
        self._make_room()

    def conversation(self, conversation_id: str, reach: Reach) -> Conversation:
        """Return a conversation without its items."""
        found = self._read(lambda db: _body(db, conversation_id, CONVERSATION, reach))
        public = json.loads(found[0])
        return Conversation(public["id"], public["created_at"], public["metadata"], found[2])

    def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation, the earliest first."""

        def work(db: Sql) -> list[Item]:
            _body(db, conversation_id, CONVERSATION, reach)
            return _items(db, conversation_id, CONVERSATION)

        return self._read(work)

    def add_items(self, conversation_id: str, items: Sequence[Item], reach: Reach) -> None:
        """Append items to a conversation."""

        def work(db: Sql) -> None:
            _body(db, conversation_id, CONVERSATION, reach)
            _extend(db, conversation_id, items)

        self._write(work)
        self._make_room()

    def delete_item(self, conversation_id: str, item_id: str, reach: Reach) -> None:
        """Delete an item of a conversation."""

        def work(db: Sql) -> None:
            _body(db, conversation_id, CONVERSATION, reach)
            query = "DELETE FROM items WHERE record = ? AND part = ? AND id = ?"
            if not db.execute(query, (conversation_id, CONVERSATION, item_id)).rowcount:
                raise NotStored(item_id)

        self._write(work)

    def delete_conversation(self, conversation_id: str, reach: Reach) -> None:
        """Delete a conversation with its items; its responses stay."""
        self._write(lambda db: self._delete(db, conversation_id, CONVERSATION, reach))

    # -- the database ----------------------------------------------------------------------------

    @abstractmethod
    def renew(self) -> None:
        """Let other servers over the same store know that this one lives, if it has used it."""

    @abstractmethod
    def close(self) -> None:
        """Give back files and connections; the next use opens them again."""

    @abstractmethod
    def _read(self, work: Callable[[Sql], T]) -> T:
        """Return the result of `work`, which only reads."""

    @abstractmethod
    def _write(self, work: Callable[[Sql], T]) -> T:
        """Return the result of `work`, all of which happens in one transaction."""

    def _forget(self, db: Sql, ids: Sequence[str]) -> None:
        """Delete records with their items."""
        for table, column in (("items", "record"), ("records", "id")):
            db.many(f"DELETE FROM {table} WHERE {column} = ?", [(each,) for each in ids])

    def _delete(self, db: Sql, record: str, kind: str, reach: Reach) -> None:
        if _status(db, record) is not None:  # locks it before its items
            _body(db, record, kind, reach)
            self._forget(db, [record])
            return
        raise NotStored(record)

    def _begin(self, db: Sql) -> None:
        """Fail what ended servers have left; those with a journal may go on from it later."""
        query = f"SELECT id, owner, body FROM records WHERE {_UNFINISHED} {{lock_others}}"
        for record, owner, body in db.execute(query).fetchall():
            if db.leases.is_gone(owner):
                failed = json.dumps(json.loads(body) | {"status": "failed", "error": STOPPED})
                change = "UPDATE records SET status = 'failed', body = ? WHERE id = ?"
                db.execute(change, (failed, record))
        db.leases.renew(self._owner)

    def _make_room(self) -> None:
        """Delete, now and then, what was not used for longest, until the bounds hold."""
        self._writes += 1
        if self._writes % SWEEP_EVERY == 1:
            self._write(self._drop_old)
            while self._write(self._drop_surplus):
                pass

    def _drop_old(self, db: Sql) -> None:
        query = f"SELECT id FROM records WHERE NOT {_UNFINISHED} AND used < {{ago}} {{lock}}"
        old = db.execute(query, (self._bounds.max_age_seconds,)).fetchall()
        self._forget(db, [record for (record,) in old])

    def _drop_surplus(self, db: Sql) -> bool:
        """Delete some records if there are too many; return whether there may still be."""
        query = "SELECT count(*), coalesce(sum(bytes), 0) FROM records"
        count, size = db.execute(query).fetchone()
        if count <= self._bounds.max_records and size <= self._bounds.max_bytes:
            return False
        some = max(1, int(count * SWEEP_SHARE))
        query = f"SELECT id FROM records WHERE NOT {_UNFINISHED} ORDER BY used LIMIT ? {{lock}}"
        least_used = [record for (record,) in db.execute(query, (some,)).fetchall()]
        self._forget(db, least_used)
        return bool(least_used)


# -- in SQLite -------------------------------------------------------------------------------------

# `used` is the Unix time of the last use, `owner` the process that works on a response, `bytes`
# the size of a record's texts, and `tenant` whose it is. Before version 2 records were nobody's.
_SCHEMA = Schema(
    version=2,
    older=(1,),
    tables=(
        "CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, kind TEXT, previous TEXT,"
        " status TEXT, owner TEXT, used REAL, bytes INTEGER, body TEXT, messages TEXT,"
        " tenant TEXT NOT NULL DEFAULT '')",
        "CREATE INDEX IF NOT EXISTS by_use ON records (used)",
        "CREATE INDEX IF NOT EXISTS by_status ON records (status)",
        "CREATE TABLE IF NOT EXISTS items (record TEXT, part TEXT, position INTEGER, id TEXT,"
        " body TEXT, PRIMARY KEY (record, part, position)) WITHOUT ROWID",
        "CREATE INDEX IF NOT EXISTS by_id ON items (id)",
        SqliteLeases.TABLE,
    ),
    columns=(Column("records", "tenant", "TEXT NOT NULL DEFAULT ''"),),
)


class SqliteResponses(ResponseStore):
    """Responses in one file, which is opened at the first use.

    `path` None keeps them in memory, until `close`. `clock` returns seconds since 1970. The methods
    raise `UsageError` if the file cannot be opened, and sqlite3.Error if it cannot be read or
    written.
    """

    def __init__(
        self,
        path: Path | None,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(bounds)
        self.path = path
        self._clock = clock
        self._file = SqliteFile(path, _SCHEMA, self._opened)
        self._sql: SqliteSql | None = None

    def renew(self) -> None:
        """Let other users of the file know that this one lives, if it has opened the file."""
        if self._file.is_open:
            self._read(lambda db: db.leases.renew(self._owner))

    def close(self) -> None:
        """Close the file; the next use opens it again. What is in memory is lost."""
        self._file.close()

    def _read(self, work: Callable[[Sql], T]) -> T:
        self._open()
        with self._file.using():
            assert self._sql is not None
            return work(self._sql)

    def _write(self, work: Callable[[Sql], T]) -> T:
        self._open()
        with self._file.using() as db, transaction(db):
            assert self._sql is not None
            return work(self._sql)

    def _open(self) -> None:
        try:
            self._file.open()
        except (sqlite3.Error, OSError) as error:
            raise UsageError(
                f"responses cannot be stored in {self.path}: {error}; choose another file or none"
            ) from error

    def _opened(self, db: sqlite3.Connection) -> None:
        self._sql = SqliteSql(db, self._clock)
        self._begin(self._sql)


# -- in PostgreSQL ---------------------------------------------------------------------------------

# As in the SQLite file. Bodies are text, since JSON columns refuse the character U+0000.
_POSTGRES_TABLES = (
    "CREATE TABLE IF NOT EXISTS records (id text PRIMARY KEY, kind text NOT NULL, previous text,"
    " status text NOT NULL, owner text NOT NULL, used timestamptz NOT NULL, bytes bigint NOT NULL,"
    " body text NOT NULL, messages text NOT NULL)",
    # A server of an earlier version may use the database at the same time; its records are
    # nobody's. Adding a column locks the table even if it is there, so it is looked for first.
    "DO $$ BEGIN IF NOT EXISTS (SELECT FROM information_schema.columns WHERE table_name = 'records'"
    " AND table_schema = current_schema() AND column_name = 'tenant') THEN"
    " ALTER TABLE records ADD COLUMN tenant text NOT NULL DEFAULT ''; END IF; END $$",
    "CREATE INDEX IF NOT EXISTS records_by_use ON records (used)",
    "CREATE INDEX IF NOT EXISTS records_by_status ON records (status)",
    "CREATE TABLE IF NOT EXISTS items (record text REFERENCES records ON DELETE CASCADE,"
    " part text, position integer, id text NOT NULL, body text NOT NULL,"
    " PRIMARY KEY (record, part, position))",
    "CREATE INDEX IF NOT EXISTS items_by_id ON items (id)",
    PostgresLeases.TABLE,
)


class PostgresResponses(ResponseStore):
    """Responses in a PostgreSQL database. Raises `UsageError` without psycopg."""

    def __init__(self, address: str, bounds: Bounds | None = None) -> None:
        super().__init__(bounds)
        with usage_errors(Misconfigured):
            self._database = Database(address, _POSTGRES_TABLES)
        self._first = threading.Lock()
        self._is_open = False

    def renew(self) -> None:
        """Let other servers know that this one lives, if it has used the database."""
        if self._is_open:
            self._write(lambda db: db.leases.renew(self._owner))

    def close(self) -> None:
        """Give the connection back; the next use opens another one."""
        self._database.close()

    def _read(self, work: Callable[[Sql], T]) -> T:
        return self._write(work)

    def _write(self, work: Callable[[Sql], T]) -> T:
        try:
            with self._first:
                if not self._is_open:
                    self._database.transact(lambda db: self._begin(PostgresSql(db)))
                    self._is_open = True
            return self._database.transact(lambda db: work(PostgresSql(db)))
        except Unavailable as error:
            raise StoreUnavailable(str(error)) from error


# -- statements ------------------------------------------------------------------------------------

_Row = tuple[str, str, int, str, str]


def _rows(record: str, part: str, items: Sequence[Item], first: int = 0) -> list[_Row]:
    """Return items of a record as rows, from the position `first` on."""
    return [
        (record, part, position, item["id"], json.dumps(item))
        for position, item in enumerate(items, first)
    ]


def _size(rows: Sequence[_Row]) -> int:
    return sum(len(row[-1]) for row in rows)


def _insert(db: Sql, rows: Sequence[_Row]) -> None:
    if rows:
        db.many("INSERT INTO items VALUES (?, ?, ?, ?, ?)", rows)


def _status(db: Sql, record: str) -> str | None:
    """Return the status of a record, which nobody else changes meanwhile; None without one."""
    row = db.execute("SELECT status FROM records WHERE id = ? {lock}", (record,)).fetchone()
    return None if row is None else str(row[0])


def _response(db: Sql, response_id: str, reach: Reach) -> Stored:
    body, told, tenant = _body(db, response_id, RESPONSE, reach)
    covers_previous, messages = json.loads(told)
    given, made = (_items(db, response_id, part) for part in ("input", "output"))
    return Stored(json.loads(body), given, made, messages, covers_previous, tenant)


def _body(db: Sql, record: str, kind: str, reach: Reach) -> tuple[str, str, str]:
    """Return the body, the messages and the tenant of a record."""
    query = f"SELECT body, messages, tenant FROM records WHERE id = ? AND kind = ? AND {_WITHIN}"
    row = db.execute(query, (record, kind, reach, reach)).fetchone()
    if row is None:
        raise NotStored(record)
    return row[0], row[1], row[2]


def _items(db: Sql, record: str, part: str) -> list[Item]:
    query = "SELECT body FROM items WHERE record = ? AND part = ? ORDER BY position"
    return [json.loads(body) for (body,) in db.execute(query, (record, part)).fetchall()]


def _extend(db: Sql, conversation: str, items: Sequence[Item]) -> None:
    """Append items to a conversation, unless it was deleted."""
    if not items or _status(db, conversation) is None:
        return
    query = "SELECT coalesce(max(position) + 1, 0) FROM items WHERE record = ? AND part = ?"
    (first,) = db.execute(query, (conversation, CONVERSATION)).fetchone()
    rows = _rows(conversation, CONVERSATION, items, first)
    _insert(db, rows)
    change = "UPDATE records SET bytes = bytes + ?, used = {now} WHERE id = ?"
    db.execute(change, (_size(rows), conversation))
