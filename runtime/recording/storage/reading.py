"""Reading a file of recordings. Every call opens the file, reads briefly and closes it.

A connection that reads for long prevents checkpoints, so that the write-ahead log grows.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Entry, Recording, encoded, gap
from caesura.runtime.recording.storage.database import ADDED, columns_of, reading
from caesura.tools.people.owner import is_alive

CHUNK = 1000
"""The number of entries of one read."""
MAX_CHARACTERS = 4 * 2**20
"""The approximate size of one read; a read of large entries returns fewer of them."""
TRIMMED = "deleted to keep the file within its bounds"
COLUMNS = (
    *("id", "title", "source", "started", "ended", "updated", "owner", "entries"),
    *("trimmed", "trimmed_to", "content", "about", "note", "pinned", "sessions"),
)

Page = list[tuple[int, str]]
"""Entries as pairs of an id and JSON, in order of their ids."""


def recordings(path: Path) -> list[Recording]:
    """Return all recordings, the newest first. Raises `UsageError` if the file is unreadable."""
    with reading(path) as db:
        return [_recording(row) for row in _rows(db, f"{_all(db)} ORDER BY id DESC")]


def recording(path: Path, number: int) -> Recording | None:
    """Return one recording or None. Raises `UsageError` if the file is unreadable."""
    with reading(path) as db:
        found = _rows(db, f"{_all(db)} WHERE id = ?", (number,))
    return _recording(found[0]) if found else None


def page(
    path: Path, number: int, after: int = 0, limit: int = CHUNK, kinds: Collection[str] = ()
) -> Page:
    """Return the first entries of a recording with ids above `after`.

    The page holds at most `limit` entries, and at least one, of at most about `MAX_CHARACTERS`.
    If the recording's beginning was deleted, a gap entry stands for it. `kinds` selects kinds of
    entries; if it is empty, all kinds are read. Raises `UsageError` if the file is unreadable.
    """
    with reading(path) as db:
        db.execute("BEGIN")  # one snapshot for both reads
        found = _rows(db, f"{_all(db)} WHERE id = ?", (number,))
        query = "SELECT id, body FROM entries WHERE recording = ? AND id > ?"
        if kinds:
            query += f" AND kind IN ({', '.join('?' * len(kinds))})"
        values = (number, after, *kinds, limit)
        entries = _rows(db, f"{query} ORDER BY id LIMIT ?", values, _bearable)
    trimmed_to = found[0][COLUMNS.index("trimmed_to")] if found else None
    if trimmed_to and after < trimmed_to:
        told = _recording(found[0])
        entries.insert(0, (trimmed_to, encoded(gap(told.started, told.trimmed, TRIMMED))))
    return entries


def entries(path: Path, number: int, kinds: Collection[str] = ()) -> Iterator[Entry]:
    """Yield all current entries of a recording, in order. Raises `UsageError`."""
    for _, body in bodies(path, number, kinds):
        yield json.loads(body)


def bodies(path: Path, number: int, kinds: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Yield the ids and the JSON of a recording's entries, in order. Raises `UsageError`."""
    after = 0
    while found := page(path, number, after, CHUNK, kinds):
        yield from found
        after = found[-1][0]


def counts(path: Path) -> dict[int, dict[str, int]]:
    """Return the number of entries by recording and kind. Raises `UsageError`."""
    query = "SELECT recording, kind, count(*) FROM entries GROUP BY recording, kind"
    found: dict[int, dict[str, int]] = {}
    with reading(path) as db:
        for number, kind, count in _rows(db, query):
            found.setdefault(number, {})[kind] = count
    return found


def _bearable(rows: Iterable[tuple[int, str]]) -> Page:
    """Return the first of these entries, up to about `MAX_CHARACTERS`."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += len(row[1])
        if size >= MAX_CHARACTERS:
            break
    return taken


def _all(db: sqlite3.Connection) -> str:
    """Return the query of all recordings; a file that nobody has opened since may lack columns."""
    lacked = ADDED.keys() - columns_of(db)
    shown = (f"NULL AS {name}" if name in lacked else name for name in COLUMNS)
    return f"SELECT {', '.join(shown)} FROM recordings"


def _rows(
    db: sqlite3.Connection,
    query: str,
    values: tuple[Any, ...] = (),
    take: Callable[[Iterable[Any]], list[Any]] = list,
) -> list[Any]:
    try:
        return take(db.execute(query, values))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # another process is just creating the file
            return []
        raise


def _recording(row: tuple[Any, ...]) -> Recording:
    read = dict(zip(COLUMNS, row, strict=True))
    live = read["ended"] is None and is_alive(read["owner"])
    return Recording(
        id=read["id"],
        title=read["title"],
        source=read["source"],
        started=read["started"],
        # A killed process leaves no end time, so its last write counts as the end.
        ended=None if live else read["ended"] or read["updated"],
        live=live,
        entries=read["entries"],
        content=bool(read["content"]),
        about=json.loads(read["about"]),
        trimmed=read["trimmed"],
        note=read["note"] or "",
        pinned=bool(read["pinned"]),
        sessions=read["sessions"] or 0,
    )


def find(path: Path, said: str) -> Recording:
    """Return the recording that a user names by its number, or by `live` or `last`: the newest.

    Raises `UsageError` if there is no such recording.
    """
    known = recordings(path)
    if said in ("live", "last"):
        if known:
            return known[0]
        raise UsageError(f"nothing is recorded in {path} yet")
    for each in known:
        if str(each.id) == said:
            return each
    raise UsageError(f"there is no recording {said!r}: `caesura trace ls` lists them")
