"""The recordings in a file: reading them, and naming, noting, pinning and deleting them.

Every call opens the file, works briefly and closes it, so it also works beside the server that
records. A connection that reads for long prevents checkpoints, so that the write-ahead log grows.
All calls block.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from caesura.runtime.recording.entries import Entry, Recording, encoded, gap
from caesura.runtime.recording.storage import SCHEMA, open_to_read, open_to_write, shrink
from caesura.scheduler.errors import UsageError
from caesura.stores.leases import is_alive
from caesura.stores.sqlite import columns_of, transaction

MAX_TITLE_CHARACTERS = 200
MAX_NOTE_CHARACTERS = 4000
ROWS_PER_SLICE = 5000
"""The number of entries that one transaction deletes, so that writers need not wait long."""
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
    with open_to_read(path) as db:
        return [_recording(row) for row in _rows(db, f"{_all(db)} ORDER BY id DESC")]


def recording(path: Path, number: int) -> Recording | None:
    """Return one recording or None. Raises `UsageError` if the file is unreadable."""
    with open_to_read(path) as db:
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
    with open_to_read(path) as db:
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
    with open_to_read(path) as db:
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
    lacked = {column.name for column in SCHEMA.columns} - columns_of(db, "recordings")
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


# -- curating ------------------------------------------------------------------------------------


class BeingRecorded(UsageError):
    """A recording cannot be deleted while a process records it."""


def change(
    path: Path,
    number: int,
    *,
    title: str | None = None,
    note: str | None = None,
    pinned: bool | None = None,
) -> Recording:
    """Change what is given of a recording; return the recording.

    Raises `UsageError` for an empty or too long title, for a too long note, if there is no such
    recording, and if the file cannot be written.
    """
    given = {
        "title": None if title is None else _title(title),
        "note": None if note is None else _note(note),
        "pinned": pinned,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if values:
        columns = ", ".join(f"{name} = ?" for name in values)
        with open_to_write(path) as db, transaction(db):
            db.execute(f"UPDATE recordings SET {columns} WHERE id = ?", (*values.values(), number))
    return _known(path, number)


def delete(path: Path, number: int) -> None:
    """Delete a recording with its entries, a pinned one too.

    Raises `BeingRecorded` for a live one, and `UsageError` if there is no such recording or the
    file cannot be written.
    """
    if _known(path, number).live:
        raise BeingRecorded(
            f"recording {number} is being made: stop the server that makes it, then delete it"
        )
    with open_to_write(path) as db:
        while _delete_slice(db, number):
            shrink(db)
        shrink(db)


def _delete_slice(db: sqlite3.Connection, number: int) -> bool:
    """Delete the first entries of a recording; return whether there may be more.

    The recording goes with its last entries: nobody could delete those that a crash leaves without
    a recording.
    """
    first = "SELECT id FROM entries WHERE recording = ? ORDER BY id LIMIT ?"
    with transaction(db):
        (last,) = db.execute(f"SELECT max(id) FROM ({first})", (number, ROWS_PER_SLICE)).fetchone()
        gone = db.execute("DELETE FROM entries WHERE recording = ? AND id <= ?", (number, last))
        if gone.rowcount < ROWS_PER_SLICE:
            db.execute("DELETE FROM recordings WHERE id = ?", (number,))
            return False
        db.execute(
            "UPDATE recordings SET entries = entries - ?, trimmed = trimmed + ?, trimmed_to = ?"
            " WHERE id = ?",
            (gone.rowcount, gone.rowcount, last, number),
        )
    return True


def _known(path: Path, number: int) -> Recording:
    found = recording(path, number)
    if found is None:
        raise UsageError(f"there is no recording {number}: `caesura trace ls` lists them")
    return found


def _title(text: str) -> str:
    title = " ".join(text.split()).encode("utf-8", "replace").decode()
    if not title or len(title) > MAX_TITLE_CHARACTERS:
        raise UsageError(
            f"a title has 1 to {MAX_TITLE_CHARACTERS} characters, got {len(title)}: choose another"
        )
    return title


def _note(text: str) -> str:
    note = text.strip().encode("utf-8", "replace").decode()
    if len(note) > MAX_NOTE_CHARACTERS:
        raise UsageError(
            f"a note has at most {MAX_NOTE_CHARACTERS} characters, got {len(note)}: shorten it"
        )
    return note
