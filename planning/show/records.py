"""A plan, and the run that carries it out, as records: the page shows them beside each other."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from caesura.planning.plan import Placement, Plan, plan_of
from caesura.planning.run.journal import Result
from caesura.planning.search.devices import Slots, renumbered
from caesura.planning.show.gantt import plan_bars
from caesura.scheduler.records import (
    PlanRecord,
    ProgressRecord,
    Record,
    ReplicaRecord,
    StageRecord,
)
from caesura.scheduler.records.plans import (
    OtherPlan,
    PlacementRecord,
    PlannedBlock,
    PlannedStage,
)

Write = Callable[[Sequence[dict[str, Any]]], None]
"""Takes records as plain data; it never waits and never fails."""
LoadSeconds = Callable[[Placement], float]

PARTS = 1000
"""Into how many parts finished requests are told at most, besides what other events tell."""

STATES = {
    "loading": "loading",
    "loaded": "serving",
    "not loaded": "failed",
    "draining": "draining",
    "evicting": "evicting",
    "evicted": "gone",
    "lost": "lost",
}
"""States of engines by the event of the journal that begins them."""


@dataclass(frozen=True, slots=True)
class PlannedWork:
    """What a plan is for: an application, its requests by model, and how long its engines load."""

    application: str
    requests: Mapping[str, int]
    load_seconds: LoadSeconds

    @property
    def count(self) -> int:
        """Return the number of all requests."""
        return sum(self.requests.values())


def plan_record(
    plan: Plan,
    work: PlannedWork,
    *,
    at: float,
    next_best: OtherPlan | None = None,
    usable: Sequence[int] = (),
    loaded: Mapping[Placement, Slots] | None = None,
) -> PlanRecord:
    """Return the record of a plan whose first stage begins at `at`, in Unix seconds.

    `usable` are the numbers of its devices, if some have gone away, and `loaded` what is on them
    already.
    """
    names = list(usable) or list(range(plan.devices))
    place = {device: number for number, device in enumerate(names)}
    bars = plan_bars(plan, work.load_seconds, renumbered(loaded or {}, place))
    return PlanRecord(
        at=at,
        application=work.application,
        strategy=plan.strategy,
        devices=plan.devices,
        requests=work.count,
        makespan=plan.makespan.mean,
        low=plan.makespan.low,
        high=plan.makespan.high,
        stages=tuple(
            PlannedStage(stage.seconds, list(stage.finishes), _placements(stage.placements))
            for stage in plan.stages
        ),
        blocks=tuple(
            PlannedBlock(
                device=names[bar.device],
                model=bar.model,
                state="loading" if bar.kind == "loading" else "serving",
                since=bar.begin,
                until=bar.end,
                replicas=bar.replicas,
                tensor_parallel=bar.tensor_parallel,
            )
            for bar in bars
        ),
        next_best=next_best,
    )


def other_plan(plan: Plan | None, reason: str) -> OtherPlan | None:
    """Return the record of the next best plan, and why it lost; None without one."""
    if plan is None:
        return None
    made = plan.makespan
    return OtherPlan(plan.strategy, made.mean, made.low, made.high, reason)


def _placements(placements: Iterable[Placement]) -> tuple[PlacementRecord, ...]:
    return tuple(
        PlacementRecord(one.model, one.replicas, one.tensor_parallel, one.kv_bytes, one.shares)
        for one in placements
    )


class RunRecords:
    """Writes what happens in a run as records: `event` watches its journal, `result` its results.

    `done` are the results of former runs.
    """

    def __init__(
        self,
        write: Write,
        work: PlannedWork,
        *,
        done: Iterable[Result] = (),
        next_best: OtherPlan | None = None,
    ) -> None:
        self._write = write
        self._work = work
        self._next_best = next_best
        self._done: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        for result in done:
            self._count(result)
        self._began = 0.0
        self._told_at = 0.0
        self._untold = 0

    def event(self, row: Mapping[str, Any]) -> None:
        """Write an event of the run's journal."""
        name = row["event"]
        if name == "started":
            self._began = row["time"]
            first = self._planned(row, self._began, next_best=self._next_best)
            self._tell(first, self._progress(0.0))
            return
        at = self._began + row["at"]
        if name == "replanned":
            loaded = {
                Placement(**one["placement"]): tuple(map(tuple, one["slots"]))
                for one in row["placed"]
            }
            planned = self._planned(row, at, usable=row["usable"], loaded=loaded)
            self._tell(replace(planned, why=row["reason"]))
        elif name == "stage":
            placed = tuple(
                PlacementRecord(one["model"], one["replicas"], one["tp"])
                for one in row["placements"]
            )
            self._tell(StageRecord(at, row["stage"], placed))
        elif name in STATES:
            about = row["replica"], row["model"], list(row["devices"]), STATES[name]
            self._tell(ReplicaRecord(at, *about, reason=row.get("reason", "")))
        elif name in ("finished", "stopped"):
            self._tell(self._progress(row["at"], name))

    def result(self, result: Result) -> None:
        """Count a result, and write how many there are, at most about `PARTS` times."""
        self._count(result)
        self._untold += 1
        left = self._work.count - sum(self._done.values())
        if self._untold >= max(1, self._work.count // PARTS) or not left:
            self._tell(self._progress(result.begun + result.seconds))

    def _count(self, result: Result) -> None:
        self._done[result.model] += 1
        self._failed[result.model] += bool(result.error)

    def _planned(self, row: Mapping[str, Any], at: float, **more: Any) -> PlanRecord:
        return plan_record(plan_of(row["plan"]), self._work, at=at, **more)

    def _progress(self, seconds: float, state: str = "running") -> ProgressRecord:
        self._untold = 0
        self._told_at = max(self._told_at, seconds)  # results are written in another order
        requests = self._work.requests
        return ProgressRecord(
            at=self._began + self._told_at,
            state=state,
            model=list(requests),
            requests=[float(count) for count in requests.values()],
            done=[float(self._done[model]) for model in requests],
            failed=[float(self._failed[model]) for model in requests],
        )

    def _tell(self, *records: Record) -> None:
        self._write([record.entry() for record in records])
