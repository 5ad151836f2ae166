"""Naming, noting, pinning and deleting recordings. All calls block.

They open the file themselves, so they also work beside the server that records into it.
"""

import sqlite3
from pathlib import Path

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.storage import reading
from caesura.runtime.recording.storage.bounds import shrink
from caesura.runtime.recording.storage.database import transaction, writing

MAX_TITLE_CHARACTERS = 200
MAX_NOTE_CHARACTERS = 4000
ROWS_PER_SLICE = 5000
"""The number of entries that one transaction deletes, so that writers need not wait long."""


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
        with writing(path) as db, transaction(db):
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
    with writing(path) as db:
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
    found = reading.recording(path, number)
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
