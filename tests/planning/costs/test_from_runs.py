"""What runs have seen of loading, in place of what was measured."""

from typing import Any

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.planning.costs.measured import MeasuredEngine, Seen, corrected, seen_in


def event(
    kind: str, replica: str, devices: list[int], seconds: float | None = None
) -> dict[str, Any]:
    told = {"event": kind, "replica": replica, "model": replica[0], "devices": devices}
    return told if seconds is None else {**told, "seconds": seconds}


def test_loading_and_stopping_are_taken_by_model_and_devices():
    events = [
        {"event": "started"},
        event("loading", "a-0", [0]),
        event("loading", "b-0", [1, 2]),
        event("loaded", "a-0", [0], 40.0),
        event("loaded", "b-0", [1, 2], 50.0),
        event("evicted", "a-0", [0], 0.5),
        event("evicted", "b-0", [1, 2]),
    ]
    found = seen_in([events, events])
    assert found == {("a", 1): Seen([40.0, 40.0], [0.5, 0.5]), ("b", 2): Seen([50.0, 50.0], [])}


def test_engines_that_share_a_device_while_they_load_do_not_count():
    events = [
        event("loading", "a-0", [0]),
        event("loading", "b-0", [0]),
        event("loaded", "a-0", [0], 80.0),
        event("loaded", "b-0", [0], 81.0),
        event("loading", "a-0", [0]),
        event("loaded", "a-0", [0], 40.0),
    ]
    assert seen_in([events]) == {("a", 1): Seen([40.0], [])}


def test_an_engine_that_never_loaded_says_nothing():
    events = [event("loading", "a-0", [0]), {"event": "started"}, event("loaded", "a-0", [0], 9.0)]
    assert seen_in([events]) == {}


def test_medians_replace_what_was_measured_as_far_as_it_was_seen():
    measured = MeasuredEngine(
        model="m",
        device="core",
        steps=CostModel(0.01, 0.001, 0.001, 0.0, 64),
        kv_tokens=100,
        kv_bytes=10,
        weight_bytes=1.0,
        load_seconds=50.0,
        stop_seconds=2.0,
    )
    better = corrected(measured, Seen([36.0, 40.0, 90.0]))
    assert (better.load_seconds, better.stop_seconds) == (40.0, 2.0)
    assert better.steps == measured.steps
    assert corrected(measured, Seen([], [1.0])).stop_seconds == pytest.approx(1.0)
