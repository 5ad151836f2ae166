"""Responses and conversations in PostgreSQL, which several servers share. All methods block."""

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from caesura.runtime.postgres import leases
from caesura.runtime.postgres.database import Database, Unavailable
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.store.records import (
    Bounds,
    Conversation,
    Item,
    NotStored,
    Stored,
    StoreUnavailable,
)
from caesura.runtime.server.responses.store.store import (
    CONVERSATION,
    PARTS,
    RESPONSE,
    STOPPED,
    SWEEP_EVERY,
    SWEEP_SHARE,
)
from caesura.tools.people.owner import new_owner

if TYPE_CHECKING:
    from caesura.runtime.postgres.database import Connection

T = TypeVar("T")

# As in the SQLite file. Bodies are text, since JSON columns refuse the character U+0000.
_TABLES = (
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
    leases.TABLE,
)
_NOW = "clock_timestamp()"
_WITHIN = "(%s::text IS NULL OR tenant = %s)"
"""The condition that a record is within reach, which is given twice."""
_UNFINISHED = "status IN ('queued', 'in_progress')"
_FINAL = ("completed", "incomplete", "cancelled")


class PostgresResponses:
    """A `ResponseStore` in a PostgreSQL database. Raises `UsageError` without psycopg.

    Responses that servers without a lease left unfinished become failed ones at the first use.
    """

    def __init__(self, address: str, bounds: Bounds | None = None) -> None:
        self._database = Database(address, _TABLES)
        self._bounds = bounds or Bounds()
        self._owner = new_owner()
        self._writes = 0
        self._first = threading.Lock()
        self._is_open = False

    # -- responses -------------------------------------------------------------------------------

    def put(self, stored: Stored) -> None:
        """Keep a response, in place of an earlier state of it.

        A final state also joins the response's conversation, if that still exists.
        """
        resource = {key: value for key, value in stored.resource.items() if key != "output"}
        body = json.dumps(resource)
        messages = json.dumps([stored.covers_previous, list(stored.messages)])
        status = resource["status"]
        row = (stored.id, RESPONSE, stored.previous, status, self._owner)

        def work(db: "Connection") -> None:
            if (known := _locked(db, stored.id)) is not None:
                if known in _FINAL:
                    return  # a run that went on after a restart ends its earlier responses again
                db.execute("DELETE FROM records WHERE id = %s", (stored.id,))
            size = len(body) + len(messages)
            db.execute(
                f"INSERT INTO records VALUES (%s, %s, %s, %s, %s, {_NOW}, %s, %s, %s, %s)",
                (*row, size, body, messages, stored.tenant),
            )
            for part in PARTS[:2]:
                _add_items(db, stored.id, part, getattr(stored, part))
            if stored.conversation is not None and status in ("completed", "incomplete"):
                _extend(db, stored.conversation, [*stored.input, *stored.output])

        self._do(work)
        self._make_room()

    def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response."""
        return self._do(lambda db: _response(db, response_id, reach))

    def chain(self, response_id: str, reach: Reach) -> list[Stored]:
        """Return a response behind all that it continues, the earliest first.

        All of them count as used. Raises `NotStored` also for an earlier response that is missing.
        """

        def work(db: "Connection") -> list[Stored]:
            found: list[Stored] = []
            following: str | None = response_id
            while following is not None:
                found.append(_response(db, following, reach))
                following = found[-1].previous
            ids = [stored.id for stored in found]
            db.execute(f"UPDATE records SET used = {_NOW} WHERE id = ANY(%s)", (ids,))
            return found[::-1]

        return self._do(work)

    def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response with its items."""
        self._do(lambda db: _delete(db, response_id, RESPONSE, reach))

    def item(self, item_id: str, reach: Reach) -> Item:
        """Return the item of that id, of any response or conversation."""
        query = (
            "SELECT items.body FROM items JOIN records ON records.id = record"
            f" WHERE items.id = %s AND {_WITHIN} LIMIT 1"
        )

        def work(db: "Connection") -> Item:
            row = db.execute(query, (item_id, reach, reach)).fetchone()
            if row is None:
                raise NotStored(item_id)
            item: Item = json.loads(row[0])
            return item

        return self._do(work)

    # -- conversations ---------------------------------------------------------------------------

    def put_conversation(self, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Keep a conversation, or its changed metadata; `items` join its items.

        A conversation that is there stays with its tenant.
        """
        body = json.dumps(conversation.public())

        def work(db: "Connection") -> None:
            db.execute(
                f"INSERT INTO records VALUES (%s, %s, NULL, '', '', {_NOW}, %s, %s, '[]', %s)"
                " ON CONFLICT (id) DO UPDATE SET body = excluded.body, used = excluded.used",
                (conversation.id, CONVERSATION, len(body), body, conversation.tenant),
            )
            _extend(db, conversation.id, items)

        self._do(work)
        self._make_room()

    def conversation(self, conversation_id: str, reach: Reach) -> Conversation:
        """Return a conversation without its items."""
        found = self._do(lambda db: _body(db, conversation_id, CONVERSATION, reach))
        told = json.loads(found[0])
        return Conversation(told["id"], told["created_at"], told["metadata"], found[2])

    def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation, the earliest first."""

        def work(db: "Connection") -> list[Item]:
            _body(db, conversation_id, CONVERSATION, reach)
            return _items(db, conversation_id, CONVERSATION)

        return self._do(work)

    def add_items(self, conversation_id: str, items: Sequence[Item], reach: Reach) -> None:
        """Append items to a conversation."""

        def work(db: "Connection") -> None:
            _body(db, conversation_id, CONVERSATION, reach)
            _extend(db, conversation_id, items)

        self._do(work)
        self._make_room()

    def delete_item(self, conversation_id: str, item_id: str, reach: Reach) -> None:
        """Delete an item of a conversation."""

        def work(db: "Connection") -> None:
            _body(db, conversation_id, CONVERSATION, reach)
            query = "DELETE FROM items WHERE record = %s AND part = %s AND id = %s"
            if not db.execute(query, (conversation_id, CONVERSATION, item_id)).rowcount:
                raise NotStored(item_id)

        self._do(work)

    def delete_conversation(self, conversation_id: str, reach: Reach) -> None:
        """Delete a conversation with its items; its responses stay."""
        self._do(lambda db: _delete(db, conversation_id, CONVERSATION, reach))

    def renew(self) -> None:
        """Let other servers know that this one lives, if it has used the database."""
        if self._is_open:
            self._do(lambda db: leases.renew(db, self._owner))

    def close(self) -> None:
        """Give the connection back; the next use opens another one."""
        self._database.close()

    # -- the database ----------------------------------------------------------------------------

    def _do(self, work: "Callable[[Connection], T]") -> T:
        try:
            with self._first:
                if not self._is_open:
                    self._database.transact(self._begin)
                    self._is_open = True
            return self._database.transact(work)
        except Unavailable as error:
            raise StoreUnavailable(str(error)) from error

    def _begin(self, db: "Connection") -> None:
        _fail_unfinished(db)
        leases.renew(db, self._owner)

    def _make_room(self) -> None:
        self._writes += 1
        if self._writes % SWEEP_EVERY == 1:
            self._do(lambda db: _sweep(db, self._bounds))


def _locked(db: "Connection", record: str) -> str | None:
    """Return the status of a record, which nobody else changes meanwhile; None without one."""
    query = "SELECT status FROM records WHERE id = %s FOR UPDATE"
    row = db.execute(query, (record,)).fetchone()
    return None if row is None else str(row[0])


def _response(db: "Connection", response_id: str, reach: Reach) -> Stored:
    body, told, tenant = _body(db, response_id, RESPONSE, reach)
    covers_previous, messages = json.loads(told)
    given, made = (_items(db, response_id, part) for part in PARTS[:2])
    return Stored(json.loads(body), given, made, messages, covers_previous, tenant)


def _body(db: "Connection", record: str, kind: str, reach: Reach) -> tuple[str, str, str]:
    """Return the body, the messages and the tenant of a record."""
    query = f"SELECT body, messages, tenant FROM records WHERE id = %s AND kind = %s AND {_WITHIN}"
    row = db.execute(query, (record, kind, reach, reach)).fetchone()
    if row is None:
        raise NotStored(record)
    return row[0], row[1], row[2]


def _items(db: "Connection", record: str, part: str) -> list[Item]:
    query = "SELECT body FROM items WHERE record = %s AND part = %s ORDER BY position"
    return [json.loads(body) for (body,) in db.execute(query, (record, part))]


def _add_items(
    db: "Connection", record: str, part: str, items: Iterable[Item], first: int = 0
) -> None:
    """Insert items of a record from the position `first` on, and count their texts."""
    rows = [
        (record, part, position, item["id"], json.dumps(item))
        for position, item in enumerate(items, first)
    ]
    if rows:
        with db.cursor() as cursor:
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s, %s, %s)", rows)
        size = sum(len(row[-1]) for row in rows)
        db.execute("UPDATE records SET bytes = bytes + %s WHERE id = %s", (size, record))


def _extend(db: "Connection", conversation: str, items: Sequence[Item]) -> None:
    """Append items to a conversation, unless it was deleted."""
    if not items or _locked(db, conversation) is None:
        return
    query = "SELECT coalesce(max(position) + 1, 0) FROM items WHERE record = %s AND part = %s"
    row = db.execute(query, (conversation, CONVERSATION)).fetchone()
    assert row is not None
    _add_items(db, conversation, CONVERSATION, items, row[0])
    db.execute(f"UPDATE records SET used = {_NOW} WHERE id = %s", (conversation,))


def _delete(db: "Connection", record: str, kind: str, reach: Reach) -> None:
    query = f"DELETE FROM records WHERE id = %s AND kind = %s AND {_WITHIN}"
    if not db.execute(query, (record, kind, reach, reach)).rowcount:
        raise NotStored(record)


def _fail_unfinished(db: "Connection") -> None:
    # Those with a journal are unfinished again as soon as they go on.
    query = f"SELECT id, owner, body FROM records WHERE {_UNFINISHED} FOR UPDATE SKIP LOCKED"
    for record, owner, body in db.execute(query).fetchall():
        if leases.is_gone(db, owner):
            told = json.loads(body) | {"status": "failed", "error": STOPPED}
            db.execute(
                "UPDATE records SET status = 'failed', body = %s WHERE id = %s",
                (json.dumps(told), record),
            )


def _sweep(db: "Connection", bounds: Bounds) -> None:
    """Delete the records that were not used for longest, until the bounds hold."""
    db.execute(
        f"DELETE FROM records WHERE NOT {_UNFINISHED}"
        f" AND used < {_NOW} - make_interval(secs => %s)",
        (bounds.max_age_seconds,),
    )
    while True:
        row = db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM records").fetchone()
        assert row is not None
        count, size = row
        if count <= bounds.max_records and size <= bounds.max_bytes:
            return
        some = max(1, int(count * SWEEP_SHARE))
        query = (
            "DELETE FROM records WHERE id IN (SELECT id FROM records"
            f" WHERE NOT {_UNFINISHED} ORDER BY used LIMIT %s)"
        )
        if not db.execute(query, (some,)).rowcount:
            return
