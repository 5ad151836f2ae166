"""What a recorder and its watchers keep in memory is bounded in bytes too, not only in number."""

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from caesura.runtime.recording import catalog, entries, recorder
from caesura.runtime.recording.recorder import Recorder, RowQueue, Subscription
from caesura.runtime.recording.storage import Store
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine

MB = 2**20


class Held(Store):
    """A store whose disk does not answer until it is let go."""

    def append(self, *what: Any) -> int:
        self.reached.set()
        self.free.wait(60)
        return super().append(*what)

    reached: threading.Event
    free: threading.Event


@pytest.fixture
def held(path: Any) -> Held:
    store = Held(path)
    store.reached, store.free = threading.Event(), threading.Event()
    return store


def span(characters: int) -> dict[str, Any]:
    return {"kind": "span", "attributes": {"gen_ai.input.messages": "x" * characters}}


def test_large_entries_do_not_pile_up_before_a_disk_that_hangs(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_BYTES", 2 * MB)
    with Recorder(held) as made:
        made.add([span(10)])
        assert held.reached.wait(60)
        for _ in range(60):
            made.add([span(100_000)])
        assert made._queue.bytes < 2 * MB + 110_000
        assert made.dropped == 1 + 60 - len(made._queue) > 30
        held.free.set()
    assert made.written == 1 + 60 - made.dropped + 1
    (gap,) = (each for each in catalog.entries(held.path, 1) if each["kind"] == "gap")
    assert gap["lost"] == made.dropped


def test_gaps_are_counted_as_all_that_is_pending(path: Any) -> None:
    with Recorder(Store(path), max_queue=2) as made:
        for _ in range(3):
            made.add([{"kind": "steps"}] * 5)
            for _ in range(30_000):
                if not made._queue:
                    break
                threading.Event().wait(0.002)
    assert made._queue.bytes == 0
    assert made.dropped == 9


def test_what_is_lost_while_a_gap_is_made_is_told_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when making it collects garbage, which ends a span."""
    waiting = RowQueue(max_rows=0)
    waiting.lose(3, "lost")

    def row_of(entry: dict[str, Any]) -> Any:
        if entry["lost"] == 3:
            waiting.lose(2, "lost meanwhile")
        return entries.row_of(entry)

    monkeypatch.setattr(recorder, "row_of", row_of)
    waiting.close_gap(1.0)
    waiting.close_gap(2.0)
    (gap,) = waiting.first(10, 10_000)
    assert json.loads(gap.body)["lost"] == waiting.dropped == 5


def test_bytes_are_counted_and_not_characters() -> None:
    assert entries.row_of({"kind": "x", "text": "😀" * 1000}).size > 4000


async def test_a_watcher_that_does_not_read_is_sent_to_the_store(
    path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_CHARACTERS", 1000)

    def large(first: int) -> catalog.Page:
        return [(first, "x" * 400)]

    with Recorder(Store(path)) as made, Subscription(made) as watcher:
        offer: Callable[[catalog.Page], bool] = watcher.offer
        for number in (1, 2):
            offer(large(number))
        await asyncio.sleep(0)
        assert await watcher.next() == large(1) and await watcher.next() == large(2)
        for number in (3, 4, 5):
            offer(large(number))
        await asyncio.sleep(0)
        assert await watcher.next() is None and not watcher.is_closed
        offer(large(6))
        assert await watcher.next() == large(6)


async def test_a_recorder_is_let_go_with_the_agents_that_it_records(path: Any) -> None:
    with Recorder(Store(path)) as made:
        one = Agent(ScriptedEngine(["Yes."]), [], recorder=made)
        two = Agent(ScriptedEngine(["No."]), [], recorder=made)
        assert one._settings.tracing is two._settings.tracing
        for agent in (one, two):
            await agent.run("x")
    assert made.written == 6
    left = weakref.ref(made)
    del made, one, two, agent
    gc.collect()
    assert left() is None
