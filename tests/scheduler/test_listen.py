"""Records in the API process: whoever listens gets them, and can break nothing."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, Histogram

from caesura.scheduler.vllm.engine.export.exporter import (
    Listener,
    RecordExporter,
    RecordStats,
    listeners_of,
)

from .steering import faulty_world, finishes, paused_session

LANES = {"kind": "lanes", "request": ["a"], "state": ["waiting"], "at": [1.0]}
LATER = {"kind": "of a later version", "at": 2.0}
ONE, OTHER = "one", "other"
"""The ids of two engines of this process."""


def listen(instance: str, take: Listener) -> Callable[[], None]:
    config: Any = SimpleNamespace(instance_id=instance)
    return listeners_of(config).listen(take)


def metrics(path: Path | None = None, instance: str = ONE) -> RecordExporter:
    extra = {"records": str(path)} if path else {}
    transfer = SimpleNamespace(kv_connector_extra_config=extra)
    config = SimpleNamespace(kv_transfer_config=transfer, instance_id=instance)
    types = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}
    return RecordExporter(config, types, ["model_name", "engine"], {0: ["m", "0"], 1: ["m", "1"]})


def test_a_listener_gets_the_records_of_all_ranks_of_its_engine_until_it_stops() -> None:
    heard: list[tuple[int, list[dict[str, Any]]]] = []
    stop = listen(ONE, lambda engine, records: heard.append((engine, records)))
    observer = metrics()
    observer.observe({"records": [LANES]}, 0)
    observer.observe({"records": [LANES, LATER]}, 1)
    observer.observe({}, 1)
    metrics(instance=OTHER).observe({"records": [LANES]}, 0)
    stop()
    stop()
    observer.observe({"records": [LANES]}, 0)
    assert heard == [(0, [LANES]), (1, [LANES, LATER])]


def test_a_listener_that_fails_is_told_of_once_and_breaks_nothing(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    heard: list[int] = []

    def fail(engine: int, records: list[dict[str, Any]]) -> None:
        raise RuntimeError("the disk is full")

    stops = [
        listen(ONE, fail),
        listen(ONE, lambda engine, records: heard.append(len(records))),
    ]
    observer = metrics(tmp_path / "records.jsonl")
    with caplog.at_level(logging.ERROR):
        observer.observe({"records": [LANES]})
        observer.observe({"records": [LANES]})
    for stop in stops:
        stop()
    assert heard == [1, 1]
    assert len([one for one in caplog.records if "listener" in one.message]) == 1
    written = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert written == [{"engine": 0, **LANES}] * 2


def test_all_kinds_are_counted_and_summed_up() -> None:
    world = faulty_world()
    paused_session(world)
    finishes(world)
    kinds = {record["kind"] for record in world.records}
    assert {"lanes", "opening", "pause", "steps", "session"} <= kinds
    metrics().observe({"records": [*world.records, LATER]})
    told = RecordStats(data={"records": [*world.records, LATER]}).reduce()
    assert told["pauses"] == 1
