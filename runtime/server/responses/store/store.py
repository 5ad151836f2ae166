"""Keeping and finding responses and conversations. All methods block; any thread may call them.

The tables of the store, opening them, and keeping them within bounds. All calls block.
"""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.storage.database import transaction
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.store.records import (
    Bounds,
    Conversation,
    Item,
    NotStored,
    Stored,
)
from caesura.tools.people import owner as leases

LOG = logging.getLogger(__name__)

VERSION = 2
BUSY_SECONDS = 2.0
SWEEP_SHARE = 1 / 32
"""The share of the records that is deleted at once to make room."""
STOPPED = {
    "code": "server_error",
    "message": "The server stopped before the response was complete.",
}
PARTS = ("input", "output", "conversation")
WITHIN = "(? IS NULL OR tenant = ?)"
"""The condition that a record is within reach, which is given twice."""

# `used` is the Unix time of the last use, `owner` the process that works on a response, `bytes`
# the size of a record's texts, and `tenant` whose it is. Before version 2 records were nobody's.
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS records (id TEXT PRIMARY KEY, kind TEXT, previous TEXT, status TEXT,
  owner TEXT, used REAL, bytes INTEGER, body TEXT, messages TEXT,
  tenant TEXT NOT NULL DEFAULT '');
CREATE INDEX IF NOT EXISTS by_use ON records (used);
CREATE INDEX IF NOT EXISTS by_status ON records (status);
CREATE TABLE IF NOT EXISTS items (record TEXT, part TEXT, position INTEGER, id TEXT, body TEXT,
  PRIMARY KEY (record, part, position)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_id ON items (id);
{leases.SCHEMA};
PRAGMA user_version = {VERSION};
"""


def opened(path: Path | None, now: float) -> sqlite3.Connection:
    """Return a connection to the file, which is created if needed; None keeps all in memory.

    Responses that a killed process left unfinished become failed ones. Raises `UsageError` for a
    file that cannot be used.
    """
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # conversations are private
        db = sqlite3.connect(
            path or ":memory:", timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(db)
            _fail_unfinished(db, now)
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise UsageError(
            f"responses cannot be stored in {path}: {error}; choose another file or none"
        ) from error
    return db


def _prepare(db: sqlite3.Connection) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if version == 1:
        _add_tenant(db)
    elif version != VERSION and (version or tables):
        raise sqlite3.DatabaseError(
            f"the file has version {version} or another program's tables; this program reads "
            f"version {VERSION}"
        )
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.executescript(_SCHEMA)


def _add_tenant(db: sqlite3.Connection) -> None:
    """Bring a file of version 1 to version 2, unless another process has just done so."""
    with transaction(db):
        if db.execute("PRAGMA user_version").fetchone()[0] == 1:
            db.execute("ALTER TABLE records ADD COLUMN tenant TEXT NOT NULL DEFAULT ''")
            db.execute("PRAGMA user_version = 2")


def _fail_unfinished(db: sqlite3.Connection, now: float) -> None:
    # Those with a journal are unfinished again as soon as they go on.
    query = "SELECT id, owner, body FROM records WHERE status IN ('queued', 'in_progress')"
    for record, owner, body in db.execute(query).fetchall():
        if leases.is_gone(db, owner, now):
            told = json.loads(body) | {"status": "failed", "error": STOPPED}
            db.execute(
                "UPDATE records SET status = 'failed', body = ? WHERE id = ?",
                (json.dumps(told), record),
            )


def is_final(db: sqlite3.Connection, record: str) -> bool:
    """Return whether a response has ended in a way that cannot change any more."""
    row = db.execute("SELECT status FROM records WHERE id = ?", (record,)).fetchone()
    return row is not None and row[0] in ("completed", "incomplete", "cancelled")


def add_items(
    db: sqlite3.Connection, record: str, part: str, items: Iterable[Item], first: int = 0
) -> int:
    """Insert items of a record, from the position `first` on; return the bytes of their text."""
    rows = [
        (record, part, position, item["id"], json.dumps(item))
        for position, item in enumerate(items, first)
    ]
    db.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?)", rows)
    return sum(len(row[-1]) for row in rows)


def items(db: sqlite3.Connection, record: str, part: str) -> list[Item]:
    """Return the items of one part of a record, in order."""
    query = "SELECT body FROM items WHERE record = ? AND part = ? ORDER BY position"
    return [json.loads(body) for (body,) in db.execute(query, (record, part))]


def delete(db: sqlite3.Connection, record: str, kind: str, reach: Reach) -> bool:
    """Delete a record and its items; return whether there was one of that kind within reach."""
    with transaction(db):
        query = f"DELETE FROM records WHERE id = ? AND kind = ? AND {WITHIN}"
        gone = db.execute(query, (record, kind, reach, reach)).rowcount
        if gone:
            db.execute("DELETE FROM items WHERE record = ?", (record,))
    return bool(gone)


def make_room(db: sqlite3.Connection, bounds: Bounds, now: float) -> None:
    """Delete the records that were not used for longest, until the bounds hold.

    Responses that are not finished stay.
    """
    done = "status NOT IN ('queued', 'in_progress')"
    _forget(db, f"SELECT id FROM records WHERE {done} AND used < ?", now - bounds.max_age_seconds)
    while True:
        count, size = db.execute("SELECT count(*), coalesce(sum(bytes), 0) FROM records").fetchone()
        if count <= bounds.max_records and size <= bounds.max_bytes:
            return
        some = max(1, int(count * SWEEP_SHARE))
        if not _forget(db, f"SELECT id FROM records WHERE {done} ORDER BY used LIMIT ?", some):
            return


def _forget(db: sqlite3.Connection, query: str, value: float) -> int:
    found = db.execute(query, (value,)).fetchall()
    if found:
        with transaction(db):
            db.executemany("DELETE FROM items WHERE record = ?", found)
            db.executemany("DELETE FROM records WHERE id = ?", found)
    return len(found)


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
            if is_final(db, stored.id):
                return  # a run that went on after a restart ends its earlier responses again
            db.execute("DELETE FROM items WHERE record = ?", (stored.id,))
            size = len(body) + len(messages)
            for part in ("input", "output"):
                size += add_items(db, stored.id, part, getattr(stored, part))
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
            if not delete(self._open(), response_id, RESPONSE, reach):
                raise NotStored(response_id)

    def item(self, item_id: str, reach: Reach) -> Item:
        """Return the item of that id, of any response or conversation."""
        query = (
            "SELECT items.body FROM items JOIN records ON records.id = record"
            f" WHERE items.id = ? AND {WITHIN}"
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
            return items(db, conversation_id, CONVERSATION)

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
            if not delete(self._open(), conversation_id, CONVERSATION, reach):
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
            self._db = opened(self.path, self._clock())
            leases.renew(self._db, self._owner, self._clock())
        return self._db

    def _get(self, db: sqlite3.Connection, response_id: str, reach: Reach) -> Stored:
        body, told, tenant = self._body(db, response_id, RESPONSE, reach)
        covers_previous, messages = json.loads(told)
        return Stored(
            json.loads(body),
            items(db, response_id, "input"),
            items(db, response_id, "output"),
            messages,
            covers_previous,
            tenant,
        )

    def _body(
        self, db: sqlite3.Connection, record: str, kind: str, reach: Reach
    ) -> tuple[str, str, str]:
        """Return the body, the messages and the tenant of a record."""
        columns = "SELECT body, messages, tenant FROM records"
        query = f"{columns} WHERE id = ? AND kind = ? AND {WITHIN}"
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
        size = add_items(db, conversation, CONVERSATION, items, first)
        db.execute(
            "UPDATE records SET bytes = bytes + ?, used = ? WHERE id = ?",
            (size, self._clock(), conversation),
        )

    def _make_room(self) -> None:
        with self._lock:
            self._writes += 1
            if self._writes % SWEEP_EVERY == 1:
                make_room(self._open(), self._bounds, self._clock())


def _text(value: Any) -> str:
    return json.dumps(value)
