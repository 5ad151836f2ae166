"""A plan as a table for the terminal, and beside it the run that carried it out."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from caesura.planning.plan import Makespan, Placement, Plan
from caesura.planning.run.journal import events_path
from caesura.scheduler.errors import UsageError

GIB = 1 << 30
MemoryBytes = Callable[[Placement], float]
"""The bytes that a placement takes of each of its devices."""


def plan_table(plan: Plan, memory: MemoryBytes) -> Table:
    """Return a row per stage and model, with its execution plan, memory and seconds.

    `dp` are its replicas, `tp` the devices of each, and GiB is the memory on each device. Rows of
    placements that run on from the stage before are dimmed.
    """
    table = Table(box=SIMPLE_HEAD, title_justify="left")
    table.add_column("stage", justify="right")
    table.add_column("model", no_wrap=True)
    for name in ("dp", "tp", "devices", "GiB"):
        table.add_column(name, justify="right")
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("finishes")
    at = 0.0
    before: tuple[Placement, ...] = ()
    for number, stage in enumerate(plan.stages, 1):
        for first, one in enumerate(stage.placements):
            shared = f" ({one.shares})" if one.shares else ""
            table.add_row(
                "" if first else str(number),
                escape(one.model),
                str(one.replicas),
                str(one.tensor_parallel),
                f"{one.devices}{escape(shared)}",
                f"{memory(one) / GIB:.2f}",
                "" if first else f"{at:.0f} to {at + stage.seconds:.0f}",
                "yes" if one.model in stage.finishes else "",
                style="dim" if one in before else None,
            )
        at += stage.seconds
        before = stage.placements
    return table


def makespan_text(makespan: Makespan) -> str:
    """Return the expected seconds, with the range over the draws of output lengths."""
    if makespan.low == makespan.high:
        return f"{makespan.mean:.1f} s"
    return f"{makespan.mean:.1f} s ({makespan.low:.1f} to {makespan.high:.1f} s)"


Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Ends:
    """The second at which each model finished its last request: planned and measured.

    Seconds of a run that was continued count from the start of the first, without the time between
    runs.
    """

    planned: Mapping[str, float]
    measured: Mapping[str, float]

    @property
    def error(self) -> float:
        """Return how much shorter the planned makespan is, as a share of the measured one."""
        measured = max(self.measured.values(), default=0.0)
        return max(self.planned.values(), default=0.0) / measured - 1 if measured else 0.0


def read_run(output: Path) -> tuple[Rows, Rows]:
    """Return the results of a run and its events; a torn last line is left out.

    Raises `UsageError` for files that cannot be read.
    """
    return _rows(output), _rows(events_path(output))


def _rows(path: Path) -> Rows:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise UsageError(f"{path}, line {number}: is not JSON: {line:.60}") from None
    return rows


def ends_of(plan: Plan, results: Rows, events: Rows) -> Ends:
    """Return when the models finished, by the plan and by the rows of a run's files."""
    planned: dict[str, float] = {}
    at = 0.0
    for stage in plan.stages:
        at += stage.seconds
        planned.update(dict.fromkeys(stage.finishes, at))
    measured: dict[str, float] = {}
    offsets = _offsets(events)
    for number, row in enumerate(results):
        offset = [seconds for done, seconds in offsets if done <= number][-1]
        end = offset + row.get("begun", 0.0) + row.get("seconds", 0.0)
        measured[row["model"]] = max(end, measured.get(row["model"], 0.0))
    return Ends(planned, measured)


def _offsets(events: Iterable[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Return for each run how many results were there at its start, and the seconds before it."""
    offsets: list[tuple[int, float]] = []
    before = last = 0.0
    for event in events:
        if event.get("event") == "started":
            before += last
            last = 0.0
            offsets.append((int(event.get("done", 0)), before))
        last = max(last, float(event.get("at", 0.0)))
    return offsets or [(0, 0.0)]


def ends_table(ends: Ends) -> Table:
    """Return a row per model, and one for the makespan."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("finished")
    for name in ("planned", "measured", "planned / measured"):
        table.add_column(name, justify="right")
    rows = [(model, ends.planned.get(model), end) for model, end in ends.measured.items()]
    total = max(ends.planned.values(), default=0.0), max(ends.measured.values(), default=0.0)
    for name, planned, measured in (*rows, ("all", *total)):
        known = planned is not None and measured > 0
        table.add_row(
            escape(name),
            "-" if planned is None else f"{planned:.1f} s",
            f"{measured:.1f} s",
            f"{planned / measured:.2f}" if planned is not None and known else "-",
        )
    return table
