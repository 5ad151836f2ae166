"""Bars show which model holds which device when, in a plan and in a run."""

from typing import Any

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.show.gantt import Bar, plan_bars, run_bars

SMALL, LARGE = Placement("small"), Placement("large")


def planned(*stages: Stage, devices: int = 2) -> Plan:
    return Plan("best", devices, stages, Makespan(0, 0, 0))


def test_a_model_that_stays_on_its_device_is_one_bar() -> None:
    plan = planned(Stage((SMALL, LARGE), 10.0, ("small",)), Stage((LARGE,), 5.0, ("large",)))
    assert [(bar.device, bar.model, bar.begin, bar.end) for bar in plan_bars(plan)] == [
        (0, "small", 0.0, 10.0),
        (1, "large", 0.0, 15.0),
    ]


def test_a_replica_that_is_added_is_loaded_while_the_first_goes_on() -> None:
    plan = planned(Stage((LARGE,), 10.0), Stage((Placement("large", replicas=2),), 5.0))
    assert [(bar.device, bar.begin, bar.end, bar.kind) for bar in plan_bars(plan, lambda _: 2)] == [
        (0, 0.0, 2.0, "loading"),
        (0, 2.0, 15.0, "running"),
        (1, 10.0, 12.0, "loading"),
        (1, 12.0, 15.0, "running"),
    ]


def event(name: str, at: float, replica: str = "small-0", device: int = 0) -> dict[str, Any]:
    model = replica.split("-")[0]
    return {"event": name, "at": at, "replica": replica, "model": model, "devices": [device]}


def test_models_that_share_a_device_are_loaded_together() -> None:
    pair = tuple(Placement(name, kv_bytes=1000, shares="0") for name in ("a", "b"))
    plan = Plan("test", 1, (Stage(pair, 10.0),), Makespan(10.0, 10.0, 10.0))
    loading = [bar for bar in plan_bars(plan, lambda _: 2) if bar.kind == "loading"]
    assert [(bar.model, bar.begin, bar.end) for bar in loading] == [
        ("a", 0.0, 4.0),
        ("b", 0.0, 4.0),
    ]


def test_a_run_shows_loading_running_and_what_was_lost() -> None:
    events = [
        {"event": "started"},
        event("loading", 0.0),
        {"event": "finished", "at": 1.0},
        {"event": "started"},
        event("loading", 0.5),
        event("loaded", 3.0),
        event("lost", 5.0),
        event("evicted", 5.1),
        event("loading", 5.2, "small-1"),
        event("loaded", 7.0, "small-1"),
        {"event": "stopped", "at": 9.0},
    ]
    assert run_bars(events) == [
        Bar(0, "small", 0.5, 3.0, "loading", "small-0"),
        Bar(0, "small", 3.0, 5.0, "lost", "small-0"),
        Bar(0, "small", 5.2, 7.0, "loading", "small-1"),
        Bar(0, "small", 7.0, 9.0, "running", "small-1"),
    ], "of the last run only"
