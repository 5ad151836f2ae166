"""Requests to the server as records: each answer, and equal refusals together."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from caesura.runtime.recording import recorder
from caesura.runtime.recording.recorder import HttpLog, Recorder

CHAT = "/v1/chat/completions"


class Kept:
    """A recorder that keeps its entries."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def add(self, entries: Sequence[dict[str, Any]]) -> None:
        self.entries += entries


def log_of(kept: Kept, clock: Any = lambda: 7.0) -> HttpLog:
    return HttpLog(cast(Recorder, kept), clock)


async def test_an_answer_has_a_record_of_its_own() -> None:
    kept = Kept()
    log = log_of(kept)
    log.add(CHAT, 200, 1.5, answer="chatcmpl-1")
    log.add(CHAT, 200, 2.5)
    assert [(one["at"], one["status"], one["seconds"], one["answer"]) for one in kept.entries] == [
        (7.0, 200, 1.5, "chatcmpl-1"),
        (7.0, 200, 2.5, ""),
    ]


async def test_a_flood_of_refusals_is_one_record() -> None:
    kept, times = Kept(), iter(range(10_000))
    log = log_of(kept, lambda: float(next(times)))
    for index in range(1000):
        log.add(CHAT, 429, 0.001 * (index % 5), "too_many_requests")
    log.add(CHAT, 400, 0.5)
    assert kept.entries == []
    log.flush()
    flood, other = kept.entries
    assert (flood["count"], flood["seconds"], flood["code"]) == (1000, 0.004, "too_many_requests")
    assert (other["status"], other["count"]) == (400, 1)
    assert flood["at"] == 999.0
    log.flush()
    assert len(kept.entries) == 2


async def test_a_refusal_is_written_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MERGE_SECONDS", 0.0)
    kept = Kept()
    log = log_of(kept)
    log.add(CHAT, 404, 0.1, "unknown_url")
    for _ in range(1000):
        if kept.entries:
            break
        await asyncio.sleep(0)
    log.add(CHAT, 404, 0.1, "unknown_url")
    assert [one["count"] for one in kept.entries] == [1]
    log.flush()
    assert len(kept.entries) == 2


async def test_refusals_of_many_kinds_are_bounded_too() -> None:
    kept = Kept()
    log = log_of(kept)
    for index in range(10_000):
        log.add(CHAT, 400, 0.0, f"code {index}")
    log.flush()
    assert len(kept.entries) == recorder.MAX_KEYS + 1
    assert sum(one["count"] for one in kept.entries) == 10_000
