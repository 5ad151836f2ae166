"""What is kept, in which order it is found, and within which bounds."""

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Recording, Row, encoded, row_of
from caesura.runtime.recording.storage import SCHEMA, Bounds, Store, StoreFull
from caesura.stores.sqlite import size_of

MB = 2**20


def rows(count: int, size: int = 0) -> list[Row]:
    return [row_of({"kind": "steps", "n": n, "fill": "x" * size}) for n in range(count)]


def numbers(path: Path, recording: int) -> list[int]:
    return [entry["n"] for entry in catalog.entries(path, recording) if "n" in entry]


def test_entries_come_back_in_order_and_by_id(store: Store, path: Path) -> None:
    one = store.begin("one", "serve", {"model": "m"})
    two = store.begin("two", "sdk", content=True)
    first = store.append(one, rows(3))
    store.append(two, rows(2))
    again = store.append(one, rows(2))
    assert (first, again) == (1, 6)
    assert [number for number, _ in catalog.page(path, one)] == [1, 2, 3, 6, 7]
    assert [number for number, _ in catalog.page(path, one, after=2, limit=2)] == [3, 6]
    assert numbers(path, two) == [0, 1]
    newest, oldest = catalog.recordings(path)
    assert (newest.id, newest.title, newest.source, newest.content) == (two, "two", "sdk", True)
    assert (oldest.entries, oldest.live, oldest.about) == (5, True, {"model": "m"})


def test_kinds_can_be_asked_for(store: Store, path: Path) -> None:
    made = store.begin("one", "serve")
    store.append(made, [*rows(2), row_of({"kind": "pause", "request": "r"}), row_of({"x": 1})])
    assert list(catalog.entries(path, made, ("pause",))) == [{"kind": "pause", "request": "r"}]
    assert catalog.counts(path) == {made: {"steps": 2, "pause": 1, "": 1}}


def test_the_end_of_a_recording(path: Path) -> None:
    store = Store(path, clock=lambda: 50.0)
    made = store.begin("one", "serve", started=10.0)
    store.end(made)
    found = catalog.recording(path, made)
    assert found == Recording(made, "one", "serve", started=10.0, ended=50.0)
    assert catalog.recording(path, made + 1) is None
    assert catalog.find(path, "live").id == made
    with pytest.raises(UsageError, match="no recording '7': `caesura trace ls`"):
        catalog.find(path, "7")


def test_a_recording_of_a_process_that_is_gone_is_not_live(store: Store, path: Path) -> None:
    made = store.begin("one", "serve")
    store.append(made, rows(1))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE recordings SET owner = '1-0-1', updated = 33.0")
    db.close()
    found = catalog.recording(path, made)
    assert found is not None and (found.live, found.ended) == (False, 33.0)
    Store(path).begin("two", "serve")
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT ended FROM recordings WHERE id = 1").fetchone() == (33.0,)
    db.close()


def test_whoever_goes_on_writing_has_not_ended(path: Path) -> None:
    """A process of another container looks dead to this one."""
    now = 10.0
    store = Store(path, clock=lambda: now)
    made = store.begin("one", "serve")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE recordings SET owner = '1-0-1'")
    db.close()
    Store(path).begin("two", "serve")  # which ends those of the dead
    now = 20.0
    store.append(made, rows(1))
    found = catalog.recording(path, made)
    assert found is not None and found.ended == 20.0


@pytest.mark.parametrize("megabytes", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_file_stays_within_its_size_and_the_newest_entries_stay(
    path: Path, megabytes: int
) -> None:
    store, most, written = Store(path, Bounds(megabytes * MB)), 0, 0
    made = store.begin("one", "serve")
    while written < 2.5 * megabytes * MB:
        batch = rows(41, 300)
        store.append(made, batch)
        written += sum(len(row.body) for row in batch)
        most = max(most, size_of(path))
    assert most <= megabytes * MB
    kept = sum(len(body) for _, body in catalog.bodies(path, made))
    assert kept > megabytes * MB / 2  # no more is deleted than has to be
    found = catalog.recording(path, made)
    assert found is not None and found.trimmed > 0 < found.entries
    (gap, *left) = list(catalog.entries(path, made))
    assert (gap["kind"], gap["lost"]) == ("gap", found.trimmed)
    assert "deleted" in gap["why"]
    assert len(left) == found.entries and left[-1]["n"] == 40
    ids = [number for number, _ in catalog.bodies(path, made)]
    assert ids == sorted(set(ids))


def test_old_entries_go_and_so_do_recordings_without_any(path: Path) -> None:
    now = 1000.0
    store = Store(path, Bounds(max_age_seconds=3600.0), lambda: now)
    old, long = store.begin("old", "serve"), store.begin("long", "serve")
    store.append(old, rows(3))
    store.append(long, rows(2))
    store.end(old)
    now += 2 * 3600.0
    store.append(long, rows(4))
    now += 601.0
    store.append(long, rows(1))
    assert [each.title for each in catalog.recordings(path)] == ["long"]
    assert numbers(path, long) == [0, 1, 2, 3, 0]


def test_what_is_deleted_while_it_is_read_is_told_or_still_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(path)
    made = store.begin("one", "serve")
    store.append(made, rows(6))
    look = catalog._rows

    def look_while_others_delete(db: sqlite3.Connection, *query: Any) -> list[Any]:
        seen = look(db, *query)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("DELETE FROM entries WHERE id <= 4")
            other.execute("UPDATE recordings SET entries = 2, trimmed = 4, trimmed_to = 4")
        return seen

    monkeypatch.setattr(catalog, "_rows", look_while_others_delete)
    assert [number for number, _ in catalog.page(path, made)] == [1, 2, 3, 4, 5, 6]
    gap, *left = catalog.page(path, made)
    assert json.loads(gap[1])["lost"] == 4 and [number for number, _ in left] == [5, 6]


def test_several_users_of_one_file(path: Path) -> None:
    one, two = Store(path), Store(path)
    first, second = one.begin("one", "serve"), two.begin("two", "serve")
    for _ in range(5):
        one.append(first, rows(2))
        two.append(second, rows(3))
    assert (len(numbers(path, first)), len(numbers(path, second))) == (10, 15)
    assert [number for number, _ in catalog.page(path, first)][:4] == [1, 2, 6, 7]


def test_pinned_recordings_are_not_deleted_for_room_or_age(path: Path) -> None:
    now = 1000.0
    store = Store(path, Bounds(MB, max_age_seconds=3600.0), lambda: now)
    kept, old, new = (store.begin(name, "serve") for name in ("kept", "old", "new"))
    store.append(kept, rows(300, 300))
    store.append(old, rows(300, 300))
    store.end(kept)
    store.end(old)
    catalog.change(path, kept, pinned=True)
    while not (found := catalog.recording(path, new)) or not found.trimmed:
        store.append(new, rows(100, 300))
    assert size_of(path) <= MB
    assert numbers(path, kept) == list(range(300))
    assert [each.title for each in catalog.recordings(path)] == ["new", "kept"]
    now += 7200.0
    store.append(new, rows(1))
    assert (numbers(path, new), len(numbers(path, kept))) == ([0], 300)


def test_where_only_pinned_recordings_are_left_nothing_more_is_recorded(path: Path) -> None:
    store = Store(path, Bounds(MB))
    kept = store.begin("kept", "serve")
    catalog.change(path, kept, pinned=True)
    written = 0
    with pytest.raises(StoreFull, match="pinned recordings fill it"):
        while True:
            store.append(kept, rows(50, 300))
            written += 50
    assert len(numbers(path, kept)) == written
    assert size_of(path) <= MB
    catalog.change(path, kept, pinned=False)
    store.append(kept, rows(50, 300))


def test_recordings_are_renamed_noted_and_deleted(store: Store, path: Path) -> None:
    made, other = store.begin("one", "serve"), store.begin("two", "serve")
    store.append(made, rows(3))
    store.append(other, [*rows(2), row_of({"kind": "session", "request": "r"})])
    store.end(made)
    changed = catalog.change(path, made, title="  before  the\nfix ", note="slow\nhere")
    assert (changed.title, changed.note, changed.pinned) == ("before the fix", "slow\nhere", False)
    assert catalog.change(path, made, note="").note == ""
    with pytest.raises(UsageError, match="1 to 200 characters, got 0"):
        catalog.change(path, made, title=" ")
    with pytest.raises(UsageError, match="no recording 9"):
        catalog.change(path, 9, pinned=True)
    with pytest.raises(catalog.BeingRecorded, match="stop the server"):
        catalog.delete(path, other)
    catalog.delete(path, made)
    (left,) = catalog.recordings(path)
    assert (left.title, left.sessions, len(numbers(path, other))) == ("two", 1, 2)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM entries").fetchone() == (3,)
    db.close()


def test_a_deletion_that_was_broken_off_can_be_finished(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = store.begin("one", "serve"), store.begin("two", "serve")
    store.append(made, rows(10))
    store.append(other, rows(1))
    store.end(made)
    monkeypatch.setattr(catalog, "ROWS_PER_SLICE", 4)

    def killed(db: sqlite3.Connection) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying, pytest.raises(KeyboardInterrupt):
        dying.setattr(catalog, "shrink", killed)
        catalog.delete(path, made)
    left = catalog.recording(path, made)
    assert left is not None and (left.entries, left.trimmed) == (6, 4)
    assert numbers(path, made) == [4, 5, 6, 7, 8, 9]
    catalog.delete(path, made)
    assert [each.title for each in catalog.recordings(path)] == ["two"]
    assert catalog.counts(path) == {other: {"steps": 1}}


def test_files_of_older_versions_are_read_and_gain_what_they_lack(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA.version}")
        for statement in SCHEMA.tables:
            db.execute(statement)
        db.execute(
            "INSERT INTO recordings VALUES"
            " (1, 'old', 'serve', 10, 20, 20, '1-0-1', 2, 0, 0, 0, '{\"model\": \"m\"}')"
        )
        for kind in ("steps", "session"):
            body = encoded({"kind": kind, "n": 0})
            db.execute(
                "INSERT INTO entries (recording, at, kind, body) VALUES (1, 10, ?, ?)",
                (kind, body),
            )
    db.close()
    (old,) = catalog.recordings(path)
    assert (old.title, old.note, old.pinned, old.sessions) == ("old", "", False, 0)
    store = Store(path)
    store.begin("new", "serve")
    store.close()
    _, again = catalog.recordings(path)
    assert (again.title, again.about, again.sessions) == ("old", {"model": "m"}, 1)
    assert [each["kind"] for each in catalog.entries(path, 1)] == ["steps", "session"]
    assert catalog.change(path, 1, pinned=True).pinned


def test_only_the_user_can_read_it(store: Store, path: Path) -> None:
    store.append(store.begin("one", "serve"), rows(1))
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_files_that_are_none(path: Path) -> None:
    with pytest.raises(UsageError, match=r"there are no traces in .*--store"):
        catalog.recordings(path)
    path.parent.mkdir()
    path.write_text("no data base " * 1000)
    with pytest.raises(UsageError, match="cannot be read: file is not a database"):
        catalog.recordings(path)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(UsageError, match="move the file away"):
        catalog.recordings(path)
    with pytest.raises(UsageError, match="move the file away"):
        Store(path).begin("one", "serve")


def test_what_is_no_json_is_still_an_entry() -> None:
    odd = {"kind": "x", "far": float("inf"), "rows": [float("nan"), 1.0], "path": Path("a")}
    assert encoded(odd) == '{"kind":"x","far":null,"rows":[null,1.0],"path":"a"}'
    assert encoded({"text": "\ud800"}) == '{"text":"\\ud800"}'
    assert Recording.from_public({"title": "t", "of_later": 1}).title == "t"
