"""A run's journal becomes records that tell the plan, its stages and engines, and what is done."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.run.journal import Journal, Result
from caesura.planning.show.records import PlannedWork, RunRecords, other_plan, plan_record
from caesura.scheduler.records import PlanRecord, ProgressRecord, ReplicaRecord, parse
from tests.planning.run.applications import requests
from tests.planning.run.carried import plan as made
from tests.planning.run.carried import run as carried_out
from tests.planning.run.engines import FakeHost

SMALL, LARGE = Placement("small"), Placement("large", 1, 2)
PLAN = Plan(
    "best",
    3,
    (Stage((SMALL, LARGE), 10.0, ("small",)), Stage((LARGE,), 5.0, ("large",))),
    Makespan(15.0, 14.0, 16.5),
)
WORK = PlannedWork("app", {"small": 4, "large": 2}, lambda one: 2.0)
BEGAN = 1_700_000_000.0


class Written:
    """Keeps records as plain data."""

    def __init__(self, **options: Any) -> None:
        self.entries: list[dict[str, Any]] = []
        self.records = RunRecords(self.write, WORK, **options)

    def write(self, entries: Sequence[dict[str, Any]]) -> None:
        self.entries += entries

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["kind"] == kind]


def started(written: Written, plan: Plan = PLAN) -> None:
    written.records.event({"event": "started", "time": BEGAN, "done": 0, "plan": asdict(plan)})


def result(model: str, number: int, begun: float, error: str = "") -> Result:
    return Result(f"{model}/{number}", model, model, error=error, begun=begun, seconds=1.0)


def test_a_plan_tells_its_stages_and_blocks_and_the_next_best() -> None:
    worse = Plan("max", 3, PLAN.stages, Makespan(20.0, 19.0, 21.0))
    other = other_plan(worse, "max takes longer")
    record = plan_record(PLAN, WORK, at=BEGAN, next_best=other)
    assert parse(record.entry()) == record
    assert (record.application, record.requests) == ("app", 6)
    assert (record.makespan, record.low, record.high) == (15.0, 14.0, 16.5)
    assert [stage.seconds for stage in record.stages] == [10.0, 5.0]
    blocks = [(one.device, one.model, one.state, one.since, one.until) for one in record.blocks]
    assert (0, "large", "loading", 0.0, 2.0) in blocks
    assert (1, "large", "serving", 2.0, 15.0) in blocks
    assert (2, "small", "serving", 2.0, 10.0) in blocks
    assert all(one.tensor_parallel == 2 for one in record.blocks if one.model == "large")
    assert record.next_best == other
    assert other_plan(None, "") is None


def test_a_run_tells_its_plan_first_and_what_former_runs_have_done() -> None:
    written = Written(done=[result("small", 0, 0.0), result("large", 0, 0.0, "refused")])
    started(written)
    first, progress = written.entries
    assert (first["kind"], first["at"], first["requests"]) == ("plan", BEGAN, 6)
    assert progress["model"] == ["small", "large"]
    assert (progress["requests"], progress["done"]) == ([4, 2], [1, 1])
    assert progress["failed"] == [0, 1]


def test_engines_change_their_states_at_unix_times() -> None:
    written = Written()
    started(written)
    about = {"replica": "small-0", "model": "small", "devices": [2]}
    for second, name in enumerate(("loading", "loaded", "draining", "evicting", "evicted")):
        written.records.event({"event": name, "at": float(second), **about})
    written.records.event({"event": "lost", "at": 7.0, "reason": "it ended", **about})
    replicas = written.of("replica")
    assert [one["state"] for one in replicas] == [
        *("loading", "serving", "draining", "evicting", "gone", "lost")
    ]
    assert [one["at"] for one in replicas] == [BEGAN + at for at in (0, 1, 2, 3, 4, 7)]
    assert replicas[-1]["reason"] == "it ended"
    assert all(isinstance(parse(one), ReplicaRecord) for one in replicas)


def test_a_new_plan_knows_what_runs_already_and_which_devices_are_left() -> None:
    written = Written()
    started(written)
    later = Plan("list", 2, (Stage((SMALL, Placement("large", 1, 1)), 6.0),), Makespan(6, 6, 6))
    written.records.event(
        {
            "event": "replanned",
            "at": 4.0,
            "reason": "device 0 went away",
            "plan": asdict(later),
            "usable": [1, 2],
            "placed": [
                {"placement": asdict(SMALL), "slots": [(2,)]},
                {"placement": asdict(LARGE), "slots": [(0, 1)]},
            ],
        }
    )
    record = parse(written.of("plan")[1])
    assert isinstance(record, PlanRecord)
    assert (record.at, record.why) == (BEGAN + 4.0, "device 0 went away")
    blocks = [(one.device, one.model, one.state, one.since) for one in record.blocks]
    assert blocks == [
        (1, "large", "loading", 0.0),
        (1, "large", "serving", 2.0),
        (2, "small", "serving", 0.0),
    ], "small goes on where it is, without loading"


def test_results_are_counted_and_time_never_runs_backwards() -> None:
    written = Written()
    started(written)
    for done in (result("small", 0, 5.0), result("large", 0, 2.0), result("small", 1, 6.0, "no")):
        written.records.result(done)
    written.records.event({"event": "stopped", "at": 9.0, "done": 3})
    progress = written.of("progress")[1:]
    assert [one["at"] - BEGAN for one in progress] == [6.0, 6.0, 7.0, 9.0]
    assert [sum(one["done"]) for one in progress] == [1, 2, 3, 3]
    assert progress[-1]["failed"] == [1, 0]
    assert progress[-1]["state"] == "stopped"
    assert all(isinstance(parse(one), ProgressRecord) for one in progress)


def test_many_results_are_told_in_parts_and_the_last_one_always() -> None:
    entries: list[dict[str, Any]] = []
    records = RunRecords(entries.extend, PlannedWork("app", {"small": 5001}, lambda one: 0.0))
    records.event({"event": "started", "time": BEGAN, "plan": asdict(PLAN)})
    for number in range(5001):
        records.result(result("small", number, float(number)))
    told = [entry for entry in entries if entry["kind"] == "progress"]
    assert len(told) <= 1003
    assert told[-1]["done"] == [5001]


async def test_a_real_run_tells_every_step_of_its_engines(tmp_path: Path) -> None:
    """The events of the journal are those that records are made of."""
    entries: list[dict[str, Any]] = []
    asked = requests("a", "b")
    counts = {"a": 3, "b": 3}
    records = RunRecords(entries.extend, PlannedWork("test", counts, lambda one: 1.0))

    class Watched(Journal):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.watch(records.event)
            self.watch_results(records.result)

    await carried_out(
        tmp_path,
        FakeHost(1),
        made("a", "b", devices=1),
        asked,
        journal_class=Watched,
    )
    states = [entry["state"] for entry in entries if entry.get("replica") == "a-0"]
    assert states == ["loading", "serving", "draining", "evicting", "gone"]
    assert [entry["stage"] for entry in entries if entry["kind"] == "stage"] == [0, 1]
    last = entries[-1]
    assert (last["kind"], last["state"], last["done"]) == ("progress", "finished", [3, 3])
