"""Corpora: SQLite files of passages with a full-text index, one writer and many readers.

A change adds or removes files, each in one transaction. Searches run in threads that each have a
connection. The corpus that comes with Caesura holds short articles, indexed at the first use.
"""

import asyncio
import hashlib
import os
import re
import shutil
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from caesura.stores.sqlite import Schema, WrongFile, connect
from caesura.tools.errors import Unavailable
from caesura.tools.search.reading import MAX_FILE_BYTES, SUFFIXES, Fields, ReadError, read_passages
from caesura.tools.search.results import Hit, words_of
from caesura.tools.services import SetupError

DEFAULT_CORPUS = "default"
BUNDLED_CORPUS = "bundled"
"""The bundled corpus, which is rebuilt automatically and never changed by hand."""
ARTICLES = Path(__file__).parent / "articles"
VERSION = 1
_APPLICATION = 0x43534B42
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
SCHEMA = Schema(
    version=VERSION,
    application=_APPLICATION,
    tables=(
        "CREATE TABLE IF NOT EXISTS files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE,"
        " source TEXT NOT NULL, digest TEXT NOT NULL)",
        "CREATE TABLE IF NOT EXISTS passages (id INTEGER PRIMARY KEY,"
        " file INTEGER NOT NULL REFERENCES files (id),"
        " title TEXT NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL)",
        "CREATE INDEX IF NOT EXISTS passages_of_files ON passages (file)",
        "CREATE TABLE IF NOT EXISTS stamp (value TEXT NOT NULL)",
        "INSERT INTO stamp SELECT '' WHERE NOT EXISTS (SELECT 1 FROM stamp)",
        "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (title, text, content=passages,"
        " content_rowid=id, tokenize='porter unicode61 remove_diacritics 2')",
        "CREATE TRIGGER IF NOT EXISTS passage_added AFTER INSERT ON passages BEGIN"
        " INSERT INTO words (rowid, title, text) VALUES (new.id, new.title, new.text); END",
        "CREATE TRIGGER IF NOT EXISTS passage_removed AFTER DELETE ON passages BEGIN"
        " INSERT INTO words (words, rowid, title, text)"
        " VALUES ('delete', old.id, old.title, old.text); END",
    ),
    busy_seconds=30.0,
    is_private=False,
)


class CorpusError(SetupError):
    """A corpus cannot be used. The message says how to fix it."""


def corpus_path(data: Path, name: str) -> Path:
    """Return the file of the corpus of that name; raises CorpusError for an invalid name.

    data: the directory for tools' files.
    """
    if not _NAME.fullmatch(name):
        raise CorpusError(
            f"invalid corpus name {name[:64]!r}: use up to 64 letters, digits, '_' and '-'"
        )
    return data / "corpora" / f"{name}.sqlite"


def corpora(data: Path) -> list[str]:
    """Return the names of the existing corpora, without the bundled one."""
    found = sorted(path.stem for path in (data / "corpora").glob("*.sqlite"))
    return [name for name in found if name != BUNDLED_CORPUS and _NAME.fullmatch(name)]


def open_to_read(path: Path) -> sqlite3.Connection:
    """Return a read-only connection, which another thread may close.

    Raises CorpusError if the corpus does not exist or its file is not a corpus.
    """
    return _open(path, read_only=True)


def open_to_write(path: Path) -> sqlite3.Connection:
    """Return a writable connection to a corpus, created if missing; raises CorpusError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CorpusError(
            f"the directory {path.parent} cannot be created: {error.strerror}; "
            "set [data] directory in caesura.toml to a writable one"
        ) from None
    return _open(path, read_only=False)


def _open(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if read_only and not path.exists():
        raise CorpusError(
            f"the corpus {path.stem!r} does not exist; "
            f"create it with `caesura kb add --corpus {path.stem} FILES`"
        )
    try:
        return connect(path, SCHEMA, read_only=read_only)
    except WrongFile as error:
        if error.version is None:
            raise CorpusError(f"{path} is not a corpus; move it away") from None
        raise CorpusError(
            f"the corpus {path} was made by another version of Caesura; run "
            f"`caesura kb rm --all --corpus {path.stem}`, then add its files again"
        ) from None
    except (sqlite3.Error, OSError) as error:
        raise _corpus_error(error, path) from None


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection, closed at the end; raises CorpusError."""
    with closing(open_to_read(path)) as connection, errors_told(path):
        yield connection


def has_passages(path: Path) -> bool:
    """Return whether a corpus has any passages; raises CorpusError."""
    with reading(path) as connection:
        return connection.execute("SELECT 1 FROM passages LIMIT 1").fetchone() is not None


@contextmanager
def errors_told(path: Path) -> Iterator[None]:
    """Turn SQLite's errors in the block into CorpusErrors."""
    try:
        yield
    except sqlite3.Error as error:
        raise _corpus_error(error, path) from None


def _corpus_error(error: Exception, path: Path) -> CorpusError:
    """Return a CorpusError for an error of SQLite or of the file system."""
    return CorpusError(f"the corpus {path} cannot be used: {error}")


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


def files_at(paths: Iterable[Path], others: Counter[str] | None = None) -> dict[Path, str]:
    """Return the files, each with its name in results.

    A file given by its own path is always included, under its file name. A directory yields its
    files of readable formats, named by their path within it. Names that begin with a dot are
    skipped, and links to directories or to files elsewhere are not followed. `others` counts what
    was left out of directories, the unreadable files by suffix.
    """
    found: dict[Path, str] = {}
    for path in paths:
        place = Path(os.path.realpath(path))  # unlike `resolve`, it takes a loop of links
        if not place.is_dir():
            found.setdefault(place, place.name)
            continue
        for directory, inner, names in os.walk(place):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for name in sorted(names):
                file = Path(directory, name)
                if name.startswith("."):
                    continue
                if file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(place):
                    if others is not None:
                        others["links out of the directory"] += 1
                elif file.suffix.lower() in SUFFIXES:
                    found.setdefault(file, str(file.relative_to(place.parent)))
                elif others is not None:
                    others[file.suffix.lower() or "without a suffix"] += 1
    return found


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


def corpus_to_search(data: Path, name: str | None) -> Path:
    """Return the file of the corpus `name`; None: the user's own corpus, else the bundled one.

    The user's own corpus does not count while it has no passages. data: the directory for
    tools' files. Raises CorpusError.
    """
    if name is None:
        own = DEFAULT_CORPUS in corpora(data) and has_passages(corpus_path(data, DEFAULT_CORPUS))
        name = DEFAULT_CORPUS if own else BUNDLED_CORPUS
    return bundled_corpus(data) if name == BUNDLED_CORPUS else corpus_path(data, name)


def bundled_corpus(data: Path) -> Path:
    """Return the bundled corpus's file, updated to the installed articles; blocks milliseconds.

    Raises CorpusError if the data directory is not writable.
    """
    path = corpus_path(data, BUNDLED_CORPUS)
    articles = sorted(ARTICLES.glob("*.md"))
    try:
        with Corpus(path) as corpus:
            for article in articles:
                corpus.add(article, article.name)
            here = {article.resolve() for article in articles}
            corpus.remove([row.path for row in corpus.files() if row.path not in here])
    except ReadError as error:
        raise CorpusError(
            f"the bundled articles are incomplete ({error}); reinstall caesura"
        ) from None
    return path
