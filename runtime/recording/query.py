"""SQL that reads a file of recordings: tables of entries, and views of what they say."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.storage import open_to_read
from caesura.scheduler.errors import UsageError

TABLES = ("recordings", "entries")
ALLOWED = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
"""What a query may do. Attaching a file would make it."""
DENIED = ("not authorized", "authorization denied", "prohibited")
"""What SQLite says of anything else."""
INSTRUCTIONS = 100_000
"""The steps of a query between two looks at whether its user has interrupted it."""


def _field(name: str) -> str:
    return f"json_extract(body, '$.{name}')"


def _attribute(name: str) -> str:
    return f"""json_extract(body, '$.attributes."{name}"')"""


def _fields(*wanted: str) -> dict[str, str]:
    return {name: _field(name) for name in wanted}


_SPANS = {
    **_fields("trace", "span", "parent", "name", "start", "end"),
    "seconds": f"{_field('end')} - {_field('start')}",
    **_fields("status", "message"),
    "operation": _attribute(names.OPERATION),
    "model": _attribute(names.REQUEST_MODEL),
    "tool": _attribute(names.TOOL_NAME),
    "error": _attribute(names.ERROR_TYPE),
    "tenant": _attribute(names.TENANT),
    "session": _attribute(names.SESSION_ID),
    "parent_session": _attribute(names.SESSION_PARENT),
    "user": _attribute(names.USER_ID),
    "response": _attribute(names.RESPONSE_ID),
    "request": _attribute(names.REQUEST_ID),
    "request_id": _attribute(names.X_REQUEST_ID),
    "input_tokens": _attribute(names.INPUT_TOKENS),
    "cached_tokens": _attribute(names.CACHED_TOKENS),
    "output_tokens": _attribute(names.OUTPUT_TOKENS),
    "attributes": _field("attributes"),
}
_PAUSES = {
    **_fields("request", "session", "tool", "at", "pause_seconds", "queue_seconds", "outcome"),
    **_fields("handling", "blocks", "context_tokens", "loaded_tokens", "recomputed_tokens"),
    **_fields("predicted_seconds", "cost", "regret"),
}
_SESSIONS = _fields("request", "session", "at", "arrival", "calls", "decoded_tokens", "outcome")
_HTTP = _fields(
    "at", "route", "status", "seconds", "code", "answer", "count", "tenant", "request_id"
)
# A span is written when it begins and when it ends: the last entry counts. SQLite takes the other
# columns from the row of the maximum.
_VIEWS = {
    "spans": (_SPANS, "span", f" GROUP BY recording, {_field('trace')}, {_field('span')}"),
    "pauses": (_PAUSES, "pause", ""),
    "sessions": (_SESSIONS, "session", ""),
    "http": (_HTTP, "http", ""),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a query has found: the names of its columns, and rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def query(path: Path, text: str) -> Found:
    """Run one SELECT on a file of recordings.

    Raises `UsageError` for a file that cannot be read, and for a query that is wrong, or does more
    than read.
    """
    with open_to_read(path) as db:
        _prepare(db)
        try:
            found = db.execute(text)
            columns = tuple(column[0] for column in found.description or ())
            rows = found.fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise UsageError(f"{_why(error)}, in the query {text.strip()!r}") from None
    if not columns:
        raise UsageError(f"the query must be one SELECT, got {text.strip()!r}")
    return Found(columns, rows)


def schema(path: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the columns of each table and view. Raises `UsageError` for an unreadable file."""
    with open_to_read(path) as db:
        _prepare(db)
        found = {}
        for name in (*_VIEWS, *TABLES):
            described = db.execute(f"SELECT * FROM {name} LIMIT 0").description
            found[name] = tuple(column[0] for column in described)
    return found


def _prepare(db: sqlite3.Connection) -> None:
    """Make the views, which are of this connection alone, and forbid all but reading."""
    for name, (columns, kind, grouped) in _VIEWS.items():
        last = "max(id)" if grouped else "id"
        told = ", ".join(f'{value} AS "{column}"' for column, value in columns.items())
        db.execute(
            f"CREATE TEMP VIEW {name} AS SELECT recording, {last} AS id, {told}"
            f" FROM entries WHERE kind = '{kind}'{grouped}"
        )
    db.set_authorizer(_allowed)
    db.set_progress_handler(lambda: 0, INSTRUCTIONS)  # Ctrl-C is noticed


def _allowed(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def _why(error: Exception) -> str:
    told = str(error)
    if any(each in told for each in DENIED):
        return "a query can only read (SELECT)"
    if "no such" in told:
        return f"{told}: `caesura trace query` without a query lists tables and columns"
    return told
