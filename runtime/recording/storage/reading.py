"""What a file of recordings holds. Every call opens the file anew and reads for a short while.

A reader that stayed would keep the write-ahead log from being put into the file, and let it grow.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Entry, Recording, encoded, gap
from caesura.runtime.recording.storage.database import reading
from caesura.tools.people.owner import is_alive

CHUNK = 1000
"""So many entries are read at a time."""
MAX_CHARACTERS = 4 * 2**20
"""Of entries that are large fewer are read at a time: about so much of their JSON."""
TRIMMED = "deleted to keep the file within its bounds"
COLUMNS = (
    *("id", "title", "source", "started", "ended", "updated", "owner", "entries"),
    *("trimmed", "trimmed_to", "content", "about"),
)
_ALL = f"SELECT {', '.join(COLUMNS)} FROM recordings"

Page = list[tuple[int, str]]
"""Ids of entries and their JSON, by id."""


def recordings(path: Path) -> list[Recording]:
    """All recordings, the newest first. Raises `UsageError` for a file that cannot be read."""
    with reading(path) as db:
        return [_recording(row) for row in _rows(db, f"{_ALL} ORDER BY id DESC")]


def recording(path: Path, number: int) -> Recording | None:
    """One recording. Raises `UsageError` for a file that cannot be read."""
    with reading(path) as db:
        found = _rows(db, f"{_ALL} WHERE id = ?", (number,))
    return _recording(found[0]) if found else None


def page(
    path: Path, number: int, after: int = 0, limit: int = CHUNK, kinds: Collection[str] = ()
) -> Page:
    """Entries of a recording with ids above `after`, the first `limit` of them or, of large ones,
    at least one.

    Where the beginning was deleted, an entry says so. `kinds` are all unless some are named.
    Raises `UsageError`.
    """
    with reading(path) as db:
        db.execute("BEGIN")  # so that nothing is deleted between the two looks
        found = _rows(db, f"{_ALL} WHERE id = ?", (number,))
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
    """All entries of a recording as they are now, in order. Raises `UsageError`."""
    for _, body in bodies(path, number, kinds):
        yield json.loads(body)


def bodies(path: Path, number: int, kinds: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """The same with their ids, and as JSON."""
    after = 0
    while found := page(path, number, after, CHUNK, kinds):
        yield from found
        after = found[-1][0]


def counts(path: Path) -> dict[int, dict[str, int]]:
    """How many entries of each kind each recording has. Raises `UsageError`."""
    query = "SELECT recording, kind, count(*) FROM entries GROUP BY recording, kind"
    found: dict[int, dict[str, int]] = {}
    with reading(path) as db:
        for number, kind, count in _rows(db, query):
            found.setdefault(number, {})[kind] = count
    return found


def _bearable(rows: Iterable[tuple[int, str]]) -> Page:
    """The first of these entries, as many as are read at a time."""
    taken, size = [], 0
    for row in rows:
        taken.append(row)
        size += len(row[1])
        if size >= MAX_CHARACTERS:
            break
    return taken


def _rows(
    db: sqlite3.Connection,
    query: str,
    values: tuple[Any, ...] = (),
    take: Callable[[Iterable[Any]], list[Any]] = list,
) -> list[Any]:
    try:
        return take(db.execute(query, values))
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):  # a file that is just being made
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
        # Of a process that was killed, the last sign of life is all there is.
        ended=None if live else read["ended"] or read["updated"],
        live=live,
        entries=read["entries"],
        content=bool(read["content"]),
        about=json.loads(read["about"]),
        trimmed=read["trimmed"],
    )


def find(path: Path, said: str) -> Recording:
    """The recording that a user names: its number, or `live` or `last` for the newest.

    Raises `UsageError` where there is none.
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
