"""A file cache of services' answers, so that the same query is not sent twice."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from caesura.stores.sqlite import Schema, SqliteFile, transaction
from caesura.tools.search.results import Hit

MAX_ANSWERS = 20_000
_SCHEMA = Schema(
    tables=(
        "CREATE TABLE IF NOT EXISTS answers"
        " (key TEXT PRIMARY KEY, at REAL NOT NULL, hits TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS answers_by_age ON answers (at)",
    ),
    busy_seconds=1.0,
    is_private=False,
)


class Cache:
    """Hits by key, in a SQLite file that is created at the first use.

    max_age_seconds: older hits are ignored; 0 stores nothing. clock: seconds since the epoch. A
    cache that cannot be read or written behaves like an empty one.
    """

    def __init__(
        self,
        path: Path,
        max_age_seconds: float,
        *,
        max_answers: int = MAX_ANSWERS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_age_seconds = max_age_seconds
        self._max_answers = max_answers
        self._clock = clock
        self._file = SqliteFile(path, _SCHEMA)

    async def get(self, key: str) -> list[Hit] | None:
        """Return the hits under the key, or None."""
        return await asyncio.to_thread(self._get, key) if self._max_age_seconds else None

    async def put(self, key: str, hits: list[Hit]) -> None:
        """Store hits under the key."""
        if self._max_age_seconds:
            await asyncio.to_thread(self._put, key, hits)

    async def aclose(self) -> None:
        """Close the file."""
        await asyncio.to_thread(self._file.close)

    def _get(self, key: str) -> list[Hit] | None:
        since = self._clock() - self._max_age_seconds
        query = "SELECT hits FROM answers WHERE key = ? AND at > ?"
        with suppress(sqlite3.Error, OSError, ValueError, TypeError), self._file.using() as db:
            row = db.execute(query, (key, since)).fetchone()
            return None if row is None else [Hit(*each) for each in json.loads(row[0])]
        return None

    def _put(self, key: str, hits: list[Hit]) -> None:
        text = json.dumps([[hit.title, hit.source, hit.text] for hit in hits])
        with suppress(sqlite3.Error, OSError), self._file.using() as db, transaction(db):
            now = self._clock()
            db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (key, now, text))
            db.execute("DELETE FROM answers WHERE at <= ?", (now - self._max_age_seconds,))
            db.execute(
                "DELETE FROM answers WHERE key IN "
                "(SELECT key FROM answers ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (self._max_answers,),
            )
