"""Entries on their way into the file, and what happens where that is not possible."""

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording import recorder as subscription
from caesura.runtime.recording.recorder import MAX_ENTRY_BYTES, Recorder, Subscription
from caesura.runtime.recording.storage import Bounds, Store
from tests.kit.waiting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def recorder(store: Store) -> Iterator[Recorder]:
    with Recorder(store, "test", retry_seconds=0.05) as made:
        yield made


class Odd:
    def __str__(self) -> str:
        raise OSError("no name")


def step(number: int) -> dict[str, Any]:
    return {"kind": "steps", "n": number}


def entries(recorder: Recorder) -> list[dict[str, Any]]:
    assert recorder.recording is not None
    return list(catalog.entries(recorder.store.path, recorder.recording))


def numbers(recorder: Recorder) -> list[int]:
    return [each["n"] for each in entries(recorder) if "n" in each]


def test_what_is_added_is_in_the_store_after_the_end(recorder: Recorder, path: Path) -> None:
    for number in range(100):
        recorder.add([step(2 * number), step(2 * number + 1)])
    recorder.close()
    recorder.close()
    assert numbers(recorder) == list(range(200))
    (found,) = catalog.recordings(path)
    assert (found.title, found.source, found.entries, found.live) == ("test", "sdk", 200, False)
    assert (recorder.written, recorder.dropped) == (200, 0)
    recorder.add([step(0)])
    assert recorder.dropped == 1


def test_from_many_threads(recorder: Recorder) -> None:
    def add(first: int) -> None:
        for number in range(first, first + 100):
            recorder.add([step(number)])

    threads = [threading.Thread(target=add, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    found = numbers(recorder)
    assert len(found) == 800
    for n in range(8):
        assert [each for each in found if each // 1000 == n] == list(
            range(1000 * n, 1000 * n + 100)
        )


def test_too_many_at_once_are_counted_and_leave_a_gap(store: Store) -> None:
    with Recorder(store, max_queue=50) as recorder:
        recorder.add([step(number) for number in range(80)])
    *first, gap = entries(recorder)
    assert [each["n"] for each in first] == list(range(50))
    assert (gap["kind"], gap["lost"]) == ("gap", 30)
    assert "faster than" in gap["why"]
    assert recorder.dropped == 30


def test_what_cannot_be_an_entry_leaves_a_gap(recorder: Recorder) -> None:
    round_and_round: dict[str, Any] = {"kind": "steps"}
    round_and_round["self"] = round_and_round
    large = {"kind": "steps", "fill": "x" * (MAX_ENTRY_BYTES + 1)}
    odd: dict[str, Any] = {"kind": "steps", "odd": Odd()}
    recorder.add([step(1), large, "no entry", round_and_round, odd, step(2)])
    recorder.close()
    assert numbers(recorder) == [1, 2]
    assert entries(recorder)[-1]["lost"] == 4


async def test_text_that_cannot_be_encoded_stops_nothing(store: Store) -> None:
    with Recorder(store, "a model\udcff") as recorder:
        recorder.add([{"kind": "x\ud800", "request": "r\ud800"}])
        await until(lambda: recorder.written == 1)  # or both are written together
        recorder.add([step(1)])
    assert numbers(recorder)[-1:] == [1]
    assert [each.title for each in catalog.recordings(store.path)] == ["a model?"]
    assert recorder.dropped == 0


async def test_a_locked_file_is_waited_for(recorder: Recorder, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        recorder.add([step(1)])
        await asyncio.sleep(0.3)
        assert numbers(recorder) == []
        other.execute("COMMIT")
    await until(lambda: numbers(recorder) == [1])
    assert recorder.dropped == 0


async def test_a_broken_file_is_moved_aside_and_told_once(
    recorder: Recorder, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.add([step(1)])
    await until(lambda: recorder.written == 1)
    recorder.store.close()
    for each in path.parent.iterdir():
        each.write_bytes(b"rubbish" * 4096)
    recorder.add([step(2)])
    await until(lambda: recorder.written == 2)
    assert numbers(recorder) == [2]
    (aside,) = path.parent.glob("traces.sqlite.broken-*[0-9]")
    assert aside.read_bytes().startswith(b"rubbish")
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == 2
    assert "not recorded for now" in told[0] and str(aside) in told[1]


async def test_a_deleted_file_is_begun_again(recorder: Recorder, path: Path) -> None:
    recorder.add([step(1)])
    await until(lambda: recorder.written == 1)
    for each in path.parent.iterdir():
        each.unlink()
    recorder.add([step(2)])
    await until(lambda: recorder.written == 2)
    assert numbers(recorder) == [2]
    assert [each.title for each in catalog.recordings(path)] == ["test"]


class Slow(Store):
    def append(self, *what: Any) -> int:
        time.sleep(0.05)
        return super().append(*what)


async def test_under_steady_load_a_file_is_missed_and_an_end_found(path: Path) -> None:
    """With somebody who never stops, each write leaves something behind for another one."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.002):
            recorder.add([step(0)])

    with Recorder(Slow(path)) as recorder:
        busy = threading.Thread(target=go_on)
        busy.start()
        try:
            await until(lambda: recorder.written > 50)
            for each in path.parent.iterdir():
                each.unlink()
            await until(path.exists)
            await asyncio.to_thread(recorder.close)
            assert not recorder._thread.is_alive()
            (found,) = catalog.recordings(path)
            assert found.ended is not None
        finally:
            over.set()
            busy.join()


async def test_a_place_where_no_file_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a directory")
    with Recorder(Store(tmp_path / "file" / "t.sqlite"), retry_seconds=0.05) as recorder:
        recorder.add([step(1)])
        await asyncio.sleep(0.3)
        recorder.add([step(2)])
        assert recorder.recording is None
        (tmp_path / "file").unlink()
        await until(lambda: recorder.written == 2)
    assert numbers(recorder) == [1, 2]
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1


@pytest.mark.slow
async def test_a_file_that_cannot_be_kept_small_enough_is_not_written(path: Path) -> None:
    """Somebody reads for long, so that what is written cannot leave the log."""
    bounds = Bounds(2**20)
    with Recorder(Store(path, bounds), retry_seconds=60.0) as recorder:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM recordings").fetchall()
            for number in range(40):
                recorder.add([{**step(number), "fill": "x" * 100_000}])
            await asyncio.to_thread(recorder.close)
            # What waits for a file that is locked outlasts what `close` waits.
            await until(lambda: recorder.written + recorder.dropped == 40)
        sizes = [each.stat().st_size for each in path.parent.iterdir() if "shm" not in each.name]
    assert sum(sizes) <= bounds.max_bytes
    assert recorder.dropped > 0


def test_two_at_once_share_a_full_file(path: Path) -> None:
    bounds = Bounds(2**20)
    with (
        Recorder(Store(path, bounds), "one", retry_seconds=0.05) as one,
        Recorder(Store(path, bounds), "two", retry_seconds=0.05) as two,
    ):
        for number in range(80):
            for each in (one, two):
                each.add([{**step(number), "fill": "x" * 20_000}])
            time.sleep(0.005)
        # They stand in each other's way, and try again.
        for _ in range(6000):
            if min(one.written, two.written) >= 80:
                break
            time.sleep(0.01)
    sizes = [each.stat().st_size for each in path.parent.iterdir() if "shm" not in each.name]
    assert sum(sizes) <= bounds.max_bytes
    assert (one.written, one.dropped, two.written, two.dropped) == (80, 0, 80, 0)
    assert 79 in numbers(one) + numbers(two)


def test_a_full_disk_stops_nothing_but_the_recording(path: Path) -> None:
    command = [sys.executable, "-m", "tests.runtime.recording.full_disk", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = list(catalog.entries(path, told["recording"]))
    kept = [each["n"] for each in found if "n" in each]
    gaps = [each for each in found if each["kind"] == "gap"]
    assert told["dropped"] > 0
    assert sum(each["lost"] for each in gaps) == told["dropped"]
    assert len(kept) + told["dropped"] == told["added"]
    assert told["written"] == len(found)
    assert kept[-1] == told["added"] - 1
    assert [line.partition(" ")[0] for line in done.stderr.splitlines()] == ["WARNING", "INFO"]
    assert "not recorded for now" in done.stderr


async def test_watchers_are_told_of_what_is_written(recorder: Recorder) -> None:
    with Subscription(recorder) as watcher:
        recorder.add([step(1), step(2)])
        batch = await watcher.next()
        assert batch is not None
        assert [number for number, _ in batch] == [1, 2]
        assert [json.loads(body)["n"] for _, body in batch] == [1, 2]
        await asyncio.to_thread(recorder.close)
        assert await watcher.next() is None
        assert watcher.is_closed
    with Subscription(recorder) as late:
        assert await late.next() is None and late.is_closed


async def test_a_slow_watcher_is_sent_to_the_store(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "MAX_WAITING", 10)
    with Subscription(recorder) as watcher:
        recorder.add([step(number) for number in range(30)])
        await until(lambda: recorder.written == 30)
        await asyncio.sleep(0.01)
        assert await watcher.next() is None and not watcher.is_closed
        recorder.add([step(30)])
        batch = await watcher.next()
        assert batch is not None and batch[0][0] == 31


def test_a_watcher_whose_loop_has_ended_is_forgotten(recorder: Recorder) -> None:
    async def watch() -> Subscription:
        watcher = Subscription(recorder)
        recorder.subscribe(watcher)
        return watcher

    watcher = asyncio.run(watch())
    recorder.add([step(1)])
    recorder.close()
    assert numbers(recorder) == [1]
    assert not watcher.offer([])
