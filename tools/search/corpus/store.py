"""A corpus's file: its location, its schema, and how it is opened."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from caesura.stores.sqlite import Schema, WrongFile, connect
from caesura.tools.services import SetupError

DEFAULT_CORPUS = "default"
BUNDLED_CORPUS = "bundled"
"""The bundled corpus, which is rebuilt automatically and never changed by hand."""
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
