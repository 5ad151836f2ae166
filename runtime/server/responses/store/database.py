"""The tables of the store, opening them, and keeping them within bounds. All calls block."""

import json
import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.storage.database import transaction
from caesura.runtime.server.keys.key import Reach
from caesura.runtime.server.responses.items.given import Item
from caesura.runtime.server.responses.store.records import Bounds
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
