"""Changing a corpus: adding files and removing them, each whole or not at all."""

import hashlib
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from caesura.tools.search.corpus.store import errors_told, open_to_write
from caesura.tools.search.reading import Fields, ReadError, read_passages
from caesura.tools.search.reading.files import MAX_FILE_BYTES

Change = Literal["added", "changed", "unchanged"]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of a corpus."""

    path: Path
    source: str
    passages: int


class Corpus:
    """A corpus to write to, made if there is none.

    Whatever ends the process, each file is in it whole or not at all. Blocking: for the command
    line, or a thread. Raises CorpusError, as do its methods.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_to_write(path)

    def add(self, path: Path, source: str, fields: Fields | None = None) -> Change:
        """Index a file, unless its content is what is indexed already.

        source: how results name it; fields: those of JSON lines. Raises ReadError, and the corpus
        keeps what it had of the file.
        """
        data = _content(path)
        fields = fields or Fields()
        digest = hashlib.sha256(repr((path.suffix, fields)).encode() + data).hexdigest()
        name = _name(path)
        known = self._one("SELECT id, digest FROM files WHERE path = ?", name)
        if known is not None and known[1] == digest:
            return "unchanged"
        with self._changing() as connection:
            self._remove(name)
            file = connection.execute(
                "INSERT INTO files (path, source, digest) VALUES (?, ?, ?)", (name, source, digest)
            ).lastrowid
            passages = read_passages(data, path, source, fields)
            rows = ((file, each.title, each.source, each.text) for each in passages)
            connection.executemany(
                "INSERT INTO passages (file, title, source, text) VALUES (?, ?, ?, ?)", rows
            )
        return "added" if known is None else "changed"

    def remove(self, paths: list[Path]) -> int:
        """Remove files, and all files under directories; return how many they were."""
        names = [row.path for row in self.files() if any(_is_under(row.path, p) for p in paths)]
        if not names:
            return 0  # a new stamp would have every index made of the corpus built again
        with self._changing():
            for path in names:
                self._remove(str(path))
        return len(names)

    def prune(self, paths: list[Path]) -> int:
        """Remove the files at or under `paths` that exist no more; return how many they were."""
        return self.remove(
            [
                row.path
                for row in self.files()
                if any(_is_under(row.path, path) for path in paths) and not row.path.is_file()
            ]
        )

    def files(self) -> list[FileRow]:
        """What is in the corpus, in the order of the paths."""
        with errors_told(self.path):
            return files_in(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that gives the corpus a new stamp, which indexes made of it look at."""
        connection = self._connection
        with errors_told(self.path):
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("UPDATE stamp SET value = ?", (uuid.uuid4().hex,))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _remove(self, name: str) -> None:
        row = self._one("SELECT id FROM files WHERE path = ?", name)
        if row is not None:
            self._connection.execute("DELETE FROM passages WHERE file = ?", row)
            self._connection.execute("DELETE FROM files WHERE id = ?", row)

    def _one(self, statement: str, *values: str) -> tuple[int, str] | None:
        with errors_told(self.path):
            row: tuple[int, str] | None = self._connection.execute(statement, values).fetchone()
        return row


def files_in(connection: sqlite3.Connection) -> list[FileRow]:
    """What is in a corpus, in the order of the paths."""
    rows = connection.execute(
        "SELECT path, source, (SELECT count(*) FROM passages WHERE file = files.id) "
        "FROM files ORDER BY path"
    )
    return [FileRow(Path(path), source, count) for path, source, count in rows]


def delete_corpus(path: Path) -> bool:
    """Delete a corpus's file and the indexes made of it; return whether there was one."""
    there = path.exists()
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)
    for kind in ("bm25s", "tantivy"):
        for index in path.parent.glob(f"{path.stem}.{kind}-*"):
            shutil.rmtree(index, ignore_errors=True)
    return there


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ReadError("not a regular file" if path.exists() else "there is no such file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ReadError(f"larger than {MAX_FILE_BYTES // 2**20} MiB: split it")
        return path.read_bytes()
    except OSError as error:
        raise ReadError(f"cannot be read: {error.strerror}") from None


def _name(path: Path) -> str:
    """The path as it is kept; raises ReadError if no text can say it."""
    name = str(path.absolute().resolve())
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ReadError("its name is not valid UTF-8") from None
    return name


def _is_under(path: Path, place: Path) -> bool:
    return path.is_relative_to(place.absolute().resolve())
