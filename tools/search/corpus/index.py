"""Changes to a corpus: adding and removing files, each in one transaction."""

import hashlib
import os
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
    """A writable corpus, created if it does not exist.

    Even if the process is killed, the corpus holds each file whole or not at all. All methods
    block: use them on the command line or in a thread. They and the constructor raise
    CorpusError.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_to_write(path)

    def add(self, path: Path, source: str, fields: Fields | None = None) -> Change:
        """Index a file, unless the same content is indexed already.

        source: the file's name in results. fields: the names of JSON lines' fields. Raises
        ReadError, and then the corpus keeps what it had of the file.
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
        """Remove files, and all files under directories; return their number."""
        names = [row.path for row in self.files() if any(_is_under(row.path, p) for p in paths)]
        if not names:
            return 0  # without a new stamp, so that the derived indexes stay valid
        with self._changing():
            for path in names:
                self._remove(str(path))
        return len(names)

    def prune(self, paths: list[Path]) -> int:
        """Remove files at or under `paths` that no longer exist; return their number."""
        return self.remove(
            [
                row.path
                for row in self.files()
                if any(_is_under(row.path, path) for path in paths) and not row.path.is_file()
            ]
        )

    def files(self) -> list[FileRow]:
        """Return the files of the corpus, in the order of their paths."""
        with errors_told(self.path):
            return files_in(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Return the corpus itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the corpus."""
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction that gives the corpus a new stamp, which derived indexes check."""
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
    """Return the files of a corpus, in the order of their paths."""
    rows = connection.execute(
        "SELECT path, source, (SELECT count(*) FROM passages WHERE file = files.id) "
        "FROM files ORDER BY path"
    )
    return [FileRow(Path(path), source, count) for path, source, count in rows]


def delete_corpus(path: Path) -> bool:
    """Delete a corpus's file and its derived indexes; return whether the file existed."""
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
            raise ReadError("not a regular file" if path.exists() else "the file does not exist")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ReadError(f"larger than {MAX_FILE_BYTES // 2**20} MiB; split it")
        return path.read_bytes()
    except OSError as error:
        raise ReadError(f"cannot be read: {error.strerror}") from None


def _name(path: Path) -> str:
    """Return the path as it is stored; raises ReadError if it is not valid UTF-8."""
    name = str(path.absolute().resolve())
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ReadError("its name is not valid UTF-8") from None
    return name


def _is_under(path: Path, place: Path) -> bool:
    return path.is_relative_to(os.path.realpath(place))
