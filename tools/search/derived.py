"""Other kinds of index over a corpus, built from it at the first use and stored beside it."""

import asyncio
import importlib
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from caesura.tools.search.corpus import Reader
from caesura.tools.search.results import Hit, words_of

MODULES = {
    "bm25s": "caesura.tools.search.with_bm25s",
    "tantivy": "caesura.tools.search.with_tantivy",
}
Row = tuple[int, str, str]
"""A passage's number, title and text."""


class Index(Protocol):
    """An index in a directory; its module has `build(directory, rows)` and `load(directory)`."""

    def find(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the numbers of the best passages, best first. Blocking."""
        ...


class Derived:
    """Searches a corpus by an index of another kind, rebuilt whenever the corpus has changed."""

    def __init__(self, reader: Reader, kind: str) -> None:
        self._reader = reader
        self._kind = kind
        self._module = importlib.import_module(MODULES[kind])
        self._making: tuple[str, asyncio.Task[Index]] | None = None

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Return the best passages. The first search, and the first after a change, takes longer.

        If the call is cancelled meanwhile, the build continues for the next call.
        """
        words = words_of(query)
        if not words:
            return []
        index = await self._index()
        numbers = await asyncio.to_thread(index.find, words, limit)
        return await self._reader.run(lambda connection: _passages(connection, numbers))

    async def aclose(self) -> None:
        """Wait for an index that is being built, and close the corpus."""
        if self._making is not None:
            await asyncio.wait([self._making[1]])
        await self._reader.aclose()

    async def _index(self) -> Index:
        stamp = await self._reader.run(_stamp)
        making = self._making
        if making is None or making[0] != stamp or _failed(making[1]):
            making = self._making = (stamp, asyncio.ensure_future(self._made(stamp)))
        return await asyncio.shield(making[1])

    async def _made(self, stamp: str) -> Index:
        directory = self._reader.path.with_name(f"{self._prefix}{stamp}")
        if not directory.is_dir():
            stamp, rows = await self._reader.run(_content)
            directory = self._reader.path.with_name(f"{self._prefix}{stamp}")
            await asyncio.to_thread(self._build, directory, rows)
        index: Index = await asyncio.to_thread(self._module.load, directory)
        return index

    @property
    def _prefix(self) -> str:
        return f"{self._reader.path.stem}.{self._kind}-"

    def _build(self, directory: Path, rows: list[Row]) -> None:
        """Build in a temporary directory, which is renamed once the index is complete."""
        made = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{self._prefix}"))
        try:
            self._module.build(made, rows)
            for old in directory.parent.glob(f"{self._prefix}*"):
                shutil.rmtree(old, ignore_errors=True)
            made.rename(directory)
        except OSError:
            if not directory.is_dir():  # otherwise another process has built it meanwhile
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _failed(making: asyncio.Task[Index]) -> bool:
    """Return whether the build failed, or was cancelled because its event loop ended."""
    return making.done() and (making.cancelled() or making.exception() is not None)


def _stamp(connection: sqlite3.Connection) -> str:
    (stamp,) = connection.execute("SELECT value FROM stamp").fetchone()
    return str(stamp)


def _content(connection: sqlite3.Connection) -> tuple[str, list[Row]]:
    """Return the stamp and all passages, read in one transaction."""
    connection.execute("BEGIN")
    try:
        rows = connection.execute("SELECT id, title, text FROM passages ORDER BY id").fetchall()
        return _stamp(connection), rows
    finally:
        connection.execute("COMMIT")


def _passages(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[Hit]:
    select = "SELECT title, source, text FROM passages WHERE id = ?"
    rows = (connection.execute(select, (number,)).fetchone() for number in numbers)
    return [Hit(*row) for row in rows if row is not None]
