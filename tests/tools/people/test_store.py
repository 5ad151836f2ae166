"""The file of pending items: its bounds, and what happens when it fails."""

import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from caesura.tools.people import People, PeopleSettings, make_ask_user
from caesura.tools.people.pending import STATES, Pending
from caesura.tools.people.store import MAX_BYTES, Database, Store


def item(number: int, **fields: Any) -> Pending:
    values = {
        "id": f"{number:04}",
        "kind": "question",
        "session": "s",
        "conversation": "",
        "tool": "ask_user",
        "question": "x" * 100,
        "arguments": "",
        "options": (),
        "created": 1000.0 + number,
        "deadline": 9e9,
        "default": None,
    }
    return Pending(**{**values, **fields})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "people.sqlite"


def test_what_is_kept_comes_back_whole(path: Path) -> None:
    store = Store(path)
    kept = item(1, options=("a", "ä"), default="d", question="Ünï ☃ '\"; DROP TABLE items")
    store.claim(kept, "key")
    assert store.get("0001") == kept
    assert store.trouble is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store.close()
    assert store.get("0001") == kept, "closed, it is opened again"
    store.close()


def test_settled_items_are_bounded_in_number_and_age(path: Path) -> None:
    store = Store(path, max_items=5)
    for number in range(20):
        store.claim(item(number), "")
        store.settle(f"{number:04}", "answered", answer="yes")
    store.claim(item(99), "")
    store.sweep(2000.0, 0.0)
    assert len(store.listed(STATES)) == 6
    store.sweep(2000.0, 1018.0)
    assert [each.id for each in store.listed(STATES)] == ["0018", "0019", "0099"]
    store.close()


def test_a_full_disk_goes_on_in_memory_and_says_so(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path, max_bytes=40_000)
    number = 0
    while store.trouble is None and number < 500:
        store.claim(item(number), "")
        number += 1
    assert number < 500
    assert store.trouble is not None
    assert "full" in store.trouble
    assert "in memory until" in caplog.text
    assert len(store.listed(STATES)) == number, "nothing that was asked is lost"
    assert store.settle("0000", "answered", answer="yes") is not None


def test_a_locked_file_goes_on_in_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesura.stores.sqlite.BUSY_SECONDS", 0.05)
    store = Store(path)
    store.claim(item(1), "")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.claim(item(2), "")
    assert store.trouble is not None
    assert "locked" in store.trouble
    assert [each.id for each in store.listed(STATES)] == ["0001", "0002"]
    other.close()


@pytest.fixture
def clocked(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A database whose file is waited for shortly, and the seconds of its clock."""
    monkeypatch.setattr("caesura.stores.sqlite.BUSY_SECONDS", 0.05)
    now = [0.0]
    store = Store(path)
    store._db = Database(path, MAX_BYTES, clock=lambda: now[0])
    return store, now


def test_a_file_comes_back_after_a_lock_and_nothing_is_lost(path: Path, clocked: Any) -> None:
    store, now = clocked
    for number in (1, 2, 3):
        store.claim(item(number), "")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    store.claim(item(4), "")
    store.settle("0001", "answered", answer="in memory")
    other.execute("UPDATE items SET state = 'answered', answer = 'meanwhile' WHERE id = '0002'")
    other.execute("COMMIT")
    assert store.trouble is not None, "it is not tried again at once"
    now[0] = 5.0
    assert store.get("0004") is not None
    assert store.trouble is None
    for seen in (store, Store(path)):
        answers = [(each.id, each.answer) for each in seen.listed(STATES)]
        assert answers == [
            ("0001", "in memory"),
            ("0002", "meanwhile"),
            ("0003", None),
            ("0004", None),
        ]


def test_a_file_that_stays_locked_is_tried_again_later(path: Path, clocked: Any) -> None:
    store, now = clocked
    path.parent.mkdir()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    for number in range(4):
        now[0] = 5.0 * number
        store.claim(item(number), "")
        assert store.trouble is not None
    other.execute("ROLLBACK")
    now[0] += 5.0
    assert len(store.listed(STATES)) == 4 and store.trouble is None
    assert len(Store(path).listed(STATES)) == 4


def test_a_deleted_directory_is_written_again(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(path)
    store.claim(item(1), "")
    shutil.rmtree(path.parent)
    store.claim(item(2), "")
    assert "was deleted or replaced" in caplog.text
    assert [each.id for each in Store(path).listed(STATES)] == ["0001", "0002"]
    assert store.trouble is None


@pytest.mark.parametrize("data", [b"this is no data base" * 100, b"\0" * 5000])
def test_a_broken_file_is_left_alone(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    store = Store(path)
    store.claim(item(1), "")
    assert store.trouble is not None
    assert store.get("0001") is not None
    assert path.read_bytes() == data


def test_a_file_of_another_version_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
    store = Store(path)
    store.claim(item(1), "")
    assert store.trouble is not None
    assert "version 7" in store.trouble


def test_a_place_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "people.sqlite")
    store.claim(item(1), "")
    assert store.get("0001") is not None
    assert store.trouble is not None


async def test_people_are_asked_all_the_same(asking: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    people = asking.people(path=tmp_path / "file" / "people.sqlite")
    task = asking.call(asking.session(make_ask_user(people)), "ask_user", question="Q?")
    await people.answer((await asking.opened(people)).id, "yes")
    assert (await task).content == "yes"
    assert people.trouble is not None


def test_nothing_is_written_before_the_first_question(tmp_path: Path) -> None:
    make_ask_user(People(tmp_path / "people.sqlite", PeopleSettings.model_validate({})))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_before_items_had_a_tenant_is_read_and_written(path: Path) -> None:
    store = Store(path)
    store.claim(item(1), "")
    store.close()
    with sqlite3.connect(path) as db:
        db.execute('ALTER TABLE items DROP COLUMN "tenant"')
    store = Store(path)
    found = store.get("0001")
    assert found is not None and found.tenant == ""
    store.claim(item(2, tenant="ann"), "")
    kept = store.get("0002")
    assert kept is not None and kept.tenant == "ann"
    store.close()
