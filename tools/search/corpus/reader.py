"""Full-text search of a corpus, in threads that each have a connection."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from caesura.tools.errors import Unavailable
from caesura.tools.search.corpus.store import CorpusError, open_to_read
from caesura.tools.search.hit import Hit
from caesura.tools.search.words import words_of

T = TypeVar("T")
TITLE_WEIGHT = 4.0
"""The weight of a word in the title, relative to one in the text."""
THREADS = 4
MAX_SECONDS = 10.0
"""A search that takes longer is aborted."""
_PREFIX_CHARACTERS = 3
_STEPS_BETWEEN_CHECKS = 50_000
_SEARCH = """
SELECT passages.title, passages.source, passages.text
FROM words JOIN passages ON passages.id = words.rowid
WHERE words MATCH ? ORDER BY bm25(words, ?, 1.0), words.rowid LIMIT ?
"""


class Reader:
    """A corpus open for searching. It sees files that are added while it is open.

    Raises CorpusError if the corpus does not exist.
    """

    def __init__(self, path: Path, threads: int = THREADS) -> None:
        self.path = path
        self._mine = threading.local()
        self._opened: list[sqlite3.Connection] = [open_to_read(path)]
        self._first = self._opened.copy()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="caesura-search")

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best passages for the query's words; see `search_now`."""
        return await self.run(lambda connection: search_now(connection, query, limit))

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` with a connection, in a thread. Raises Unavailable for SQLite's errors."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._work, work)

    async def aclose(self) -> None:
        """Close the corpus after the running searches. May be called twice."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        while self._opened:
            self._opened.pop().close()

    def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._connection()
            deadline = time.monotonic() + MAX_SECONDS
            connection.set_progress_handler(
                lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS
            )
            return work(connection)
        except (sqlite3.Error, CorpusError) as error:
            raise Unavailable(f"the corpus cannot be searched: {error}") from None

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            try:
                connection = self._first.pop()
            except IndexError:
                connection = open_to_read(self.path)
                self._opened.append(connection)
            self._mine.connection = connection
        return connection


def search_now(connection: sqlite3.Connection, query: str, limit: int) -> list[Hit]:
    """Return the best passages for a query's words, by bm25.

    They contain all words, if there are `limit` of them; else any of the words; else words with
    the same prefixes. Blocking.
    """
    words = words_of(query)
    # Quotes make each word a literal, so that it cannot act as query syntax.
    quoted = [f'"{word}"' for word in words]
    prefixes = [f'"{word}"*' for word in words if len(word) >= _PREFIX_CHARACTERS]
    rows = _matching(connection, " AND ".join(quoted), limit)
    if len(rows) < limit and len(quoted) > 1:
        rows = _matching(connection, " OR ".join(quoted), limit)
    rows = rows or _matching(connection, " OR ".join(prefixes), limit)
    return [Hit(*row) for row in rows]


def _matching(
    connection: sqlite3.Connection, expression: str, limit: int
) -> list[tuple[str, str, str]]:
    if not expression:
        return []
    return connection.execute(_SEARCH, (expression, TITLE_WEIGHT, limit)).fetchall()
