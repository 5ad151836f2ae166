"""The charts of a study as PNG images: measures against the rate, memory over time, and waste."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from caesura.simulator.report.areas import memory, wastes
from caesura.simulator.report.canvas import demand_matplotlib
from caesura.simulator.report.curves import curves
from caesura.simulator.results import RunResult
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.summary import Point


@dataclass(frozen=True, slots=True)
class Chart:
    """An image: its file's name without ending, its title, and the PNG."""

    name: str
    title: str
    png: bytes


def draw(outcome: Outcome, points: Sequence[Point]) -> list[Chart]:
    """Return all charts of a study; raises `UsageError` if matplotlib is missing."""
    demand_matplotlib()
    machines = outcome.study.machines
    charts: list[Chart] = []
    for number, machine in enumerate(machines, start=1):
        here = [point for point in points if point.machine == machine]
        ending, where = (f"-{number}", f", {machine}") if len(machines) > 1 else ("", "")
        charts += [
            Chart(f"{name}{ending}", f"{title}{where}", png)
            for name, title, png in _drawn(outcome, machine, here)
        ]
    return charts


def _drawn(
    outcome: Outcome, machine: str, points: Sequence[Point]
) -> Iterator[tuple[str, str, bytes]]:
    """Yield the charts of one machine as (name, title, image)."""
    study = outcome.study
    if not points:
        return
    if len(study.rates) > 1:
        yield "rates", "Latency and throughput against the load", curves(study, points)
    runs = list(_watched(outcome, machine))
    if runs:
        title = f"KV memory by owner, {study.load(max(study.rates))}, seed {study.seeds[0]}"
        yield "memory", title, memory(runs)
    yield "waste", "KV memory wasted, by cause", wastes(study, points)


def _watched(outcome: Outcome, machine: str) -> Iterator[RunResult]:
    """Yield a run per policy, at the highest rate with the first seed."""
    study = outcome.study
    for made in outcome.made:
        cell = made.cell
        if (cell.machine, cell.rate, cell.seed) == (machine, max(study.rates), study.seeds[0]):
            run = made.run()
            if run is not None and run.timeline["at"]:
                yield run
