"""Keeping and finding responses and conversations. All methods block; any thread may call them."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from caesura.runtime.recording.storage.database import transaction
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.items.given import Item
from caesura.runtime.server.responses.store import database
from caesura.runtime.server.responses.store.records import (
    Bounds,
    Conversation,
    NotStored,
    Stored,
)
from caesura.tools.people import owner as leases

RESPONSE, CONVERSATION = "response", "conversation"
SWEEP_EVERY = 64
"""The number of writes between two searches for records beyond the bounds."""


class Store:
    """A file of responses and conversations, opened at the first use.

    `path` None keeps them in memory. `clock` returns seconds since 1970. The methods raise
    `UsageError` if the file cannot be opened, sqlite3.Error if it cannot be read or written, and
    `NotStored` for an id without a record within `reach`.
    """

    def __init__(
        self,
        path: Path | None,
        bounds: Bounds | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._bounds = bounds or Bounds()
        self._clock = clock
        self._owner = leases.new_owner()
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._writes = 0

    # -- responses -------------------------------------------------------------------------------

    def put(self, stored: Stored) -> None:
        """Keep a response, in place of an earlier state of it.

        A final state also joins the response's conversation, if that still exists.
        """
        resource = {key: value for key, value in stored.resource.items() if key != "output"}
        body = _text(resource)
        messages = _text([stored.covers_previous, list(stored.messages)])
        status = resource["status"]
        with self._lock, transaction(self._open()):
            db = self._open()
            if database.is_final(db, stored.id):
                return  # a run that went on after a restart ends its earlier responses again
            db.execute("DELETE FROM items WHERE record = ?", (stored.id,))
            size = len(body) + len(messages)
            for part in ("input", "output"):
                size += database.add_items(db, stored.id, part, getattr(stored, part))
            row = (stored.id, RESPONSE, stored.previous, status, self._owner, self._clock())
            db.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, size, body, messages, stored.tenant),
            )
            if stored.conversation is not None and status in ("completed", "incomplete"):
                self._extend(db, stored.conversation, [*stored.input, *stored.output])
        self._make_room()

    def get(self, response_id: str, reach: Reach) -> Stored:
        """Return a response."""
        with self._lock:
            return self._get(self._open(), response_id, reach)

    def chain(self, response_id: str, reach: Reach) -> list[Stored]:
        """Return a response behind all that it continues, the earliest first.

        All of them count as used. Raises `NotStored` also for an earlier response that is missing.
        """
        found: list[Stored] = []
        following: str | None = response_id
        with self._lock:
            db = self._open()
            while following is not None:
                found.append(self._get(db, following, reach))
                following = found[-1].previous
            used = [(self._clock(), stored.id) for stored in found]
            db.executemany("UPDATE records SET used = ? WHERE id = ?", used)
        return found[::-1]

    def delete(self, response_id: str, reach: Reach) -> None:
        """Delete a response with its items."""
        with self._lock:
            if not database.delete(self._open(), response_id, RESPONSE, reach):
                raise NotStored(response_id)

    def item(self, item_id: str, reach: Reach) -> Item:
        """Return the item of that id, of any response or conversation."""
        query = (
            "SELECT items.body FROM items JOIN records ON records.id = record"
            f" WHERE items.id = ? AND {database.WITHIN}"
        )
        with self._lock:
            row = self._open().execute(query, (item_id, reach, reach)).fetchone()
        if row is None:
            raise NotStored(item_id)
        item: Item = json.loads(row[0])
        return item

    # -- conversations ---------------------------------------------------------------------------

    def put_conversation(self, conversation: Conversation, items: Sequence[Item] = ()) -> None:
        """Keep a conversation, or its changed metadata; `items` join its items.

        A conversation that is there stays with its tenant.
        """
        body, now = _text(conversation.public()), self._clock()
        with self._lock, transaction(self._open()):
            db = self._open()
            db.execute(
                "INSERT INTO records VALUES (?, ?, NULL, '', '', ?, ?, ?, '[]', ?)"
                " ON CONFLICT (id) DO UPDATE SET body = excluded.body, used = excluded.used",
                (conversation.id, CONVERSATION, now, len(body), body, conversation.tenant),
            )
            self._extend(db, conversation.id, items)
        self._make_room()

    def conversation(self, conversation_id: str, reach: Reach) -> Conversation:
        """Return a conversation without its items."""
        with self._lock:
            body, _, tenant = self._body(self._open(), conversation_id, CONVERSATION, reach)
        told = json.loads(body)
        return Conversation(told["id"], told["created_at"], told["metadata"], tenant)

    def conversation_items(self, conversation_id: str, reach: Reach) -> list[Item]:
        """Return the items of a conversation, the earliest first."""
        with self._lock:
            db = self._open()
            self._body(db, conversation_id, CONVERSATION, reach)
            return database.items(db, conversation_id, CONVERSATION)

    def add_items(self, conversation_id: str, items: Sequence[Item], reach: Reach) -> None:
        """Append items to a conversation."""
        with self._lock, transaction(self._open()):
            self._body(self._open(), conversation_id, CONVERSATION, reach)
            self._extend(self._open(), conversation_id, items)
        self._make_room()

    def delete_item(self, conversation_id: str, item_id: str, reach: Reach) -> None:
        """Delete an item of a conversation."""
        with self._lock:
            self._body(self._open(), conversation_id, CONVERSATION, reach)
            gone = self._open().execute(
                "DELETE FROM items WHERE record = ? AND part = ? AND id = ?",
                (conversation_id, CONVERSATION, item_id),
            )
        if not gone.rowcount:
            raise NotStored(item_id)

    def delete_conversation(self, conversation_id: str, reach: Reach) -> None:
        """Delete a conversation with its items; its responses stay."""
        with self._lock:
            if not database.delete(self._open(), conversation_id, CONVERSATION, reach):
                raise NotStored(conversation_id)

    # -- the file --------------------------------------------------------------------------------

    def renew(self) -> None:
        """Let other users of the file know that this one lives, if it has opened the file."""
        with self._lock:
            if self._db is not None:
                leases.renew(self._db, self._owner, self._clock())

    def close(self) -> None:
        """Close the file; the next use opens it again. What is in memory is lost."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = database.opened(self.path, self._clock())
            leases.renew(self._db, self._owner, self._clock())
        return self._db

    def _get(self, db: sqlite3.Connection, response_id: str, reach: Reach) -> Stored:
        body, told, tenant = self._body(db, response_id, RESPONSE, reach)
        covers_previous, messages = json.loads(told)
        return Stored(
            json.loads(body),
            database.items(db, response_id, "input"),
            database.items(db, response_id, "output"),
            messages,
            covers_previous,
            tenant,
        )

    def _body(
        self, db: sqlite3.Connection, record: str, kind: str, reach: Reach
    ) -> tuple[str, str, str]:
        """Return the body, the messages and the tenant of a record."""
        columns = "SELECT body, messages, tenant FROM records"
        query = f"{columns} WHERE id = ? AND kind = ? AND {database.WITHIN}"
        found = db.execute(query, (record, kind, reach, reach))
        row: tuple[str, str, str] | None = found.fetchone()
        if row is None:
            raise NotStored(record)
        return row

    def _extend(self, db: sqlite3.Connection, conversation: str, items: Sequence[Item]) -> None:
        """Append items to a conversation, within a transaction, unless it was deleted."""
        known = db.execute("SELECT 1 FROM records WHERE id = ?", (conversation,)).fetchone()
        if not known or not items:
            return
        query = "SELECT coalesce(max(position) + 1, 0) FROM items WHERE record = ? AND part = ?"
        first = db.execute(query, (conversation, CONVERSATION)).fetchone()[0]
        size = database.add_items(db, conversation, CONVERSATION, items, first)
        db.execute(
            "UPDATE records SET bytes = bytes + ?, used = ? WHERE id = ?",
            (size, self._clock(), conversation),
        )

    def _make_room(self) -> None:
        with self._lock:
            self._writes += 1
            if self._writes % SWEEP_EVERY == 1:
                database.make_room(self._open(), self._bounds, self._clock())


def _text(value: Any) -> str:
    return json.dumps(value)
