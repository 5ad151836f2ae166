"""The SQLite file of journals."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from caesura.runtime.journal.store import JournalStore, JournalUnavailable, SqliteJournal
from caesura.stores.leases import new_owner

from .contract import JournalContract, entries


class TestSqlite(JournalContract):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Callable[[], JournalStore]:
        return lambda: SqliteJournal(tmp_path / "deep" / "journal.sqlite")


class TestInMemory(JournalContract):
    @pytest.fixture
    def opened(self) -> Callable[[], JournalStore]:
        store = SqliteJournal(None)
        return lambda: store


def test_only_its_user_reads_the_file(tmp_path: Path) -> None:
    SqliteJournal(tmp_path / "j").append("a", entries("r", 0))
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == {"j": "0o600", "j-wal": "0o600", "j-shm": "0o600"}


def test_a_process_of_this_machine_that_lives_needs_no_lease(tmp_path: Path) -> None:
    """A clock that jumps must not take runs from a server that is alive."""
    now = [1000.0]
    store = SqliteJournal(tmp_path / "j", clock=lambda: now[0])
    here = new_owner()
    store.renew(here)
    store.append(here, entries("r", 0))
    store.renew("in another container")
    store.append("in another container", entries("s", 0))
    now[0] += 400 * 24 * 3600
    assert store.left_behind() == ["s"]


def test_a_process_of_this_machine_that_has_died_leaves_its_runs_at_once(tmp_path: Path) -> None:
    store = SqliteJournal(tmp_path / "j")
    alive = new_owner()
    dead = "999999999" + alive[alive.index("-") :]
    store.renew(dead)
    store.append(dead, entries("r", 0))
    assert store.left_behind() == ["r"]


def test_a_deleted_directory_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "data" / "j"
    store = SqliteJournal(path)
    store.append("a", entries("r", 0))
    for each in path.parent.iterdir():
        each.unlink()
    path.parent.rmdir()
    assert store.load("r") == []
    store.append("a", entries("s", 0))
    assert SqliteJournal(path).load("s") == ['"0"']


def test_a_locked_file_is_used_again_after_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesura.stores.sqlite.BUSY_SECONDS", 0.01)
    path = tmp_path / "j"
    store = SqliteJournal(path)
    store.append("a", entries("r", 0))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalUnavailable, match="locked"):
        store.append("a", entries("r", 1))
    other.execute("ROLLBACK")
    store.append("a", entries("r", 1))
    assert store.load("r") == ['"0"', '"1"']


def test_a_file_without_sense_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"no database at all" * 1000)
    store = SqliteJournal(path)
    with pytest.raises(JournalUnavailable):
        store.append("a", entries("r", 0))
    store.append("a", entries("r", 0))
    assert store.load("r") == ['"0"']
    assert "is no journal and was moved to" in caplog.text


def test_another_programs_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(JournalUnavailable, match="another program's tables"):
        SqliteJournal(path).append("a", entries("r", 0))
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]
