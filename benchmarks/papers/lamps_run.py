"""From setups and systems to cells, and from the runs of these back to measures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.papers.lamps_systems import SYSTEMS
from benchmarks.papers.run import Measured
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.summary import Estimate, estimate, ratio

CUT_OFF = 4.0
"""A run is cut off after so many times the span of its arrivals, ..."""

LONGEST_PAUSES = 600.0
"""... and these seconds, in which the sessions that call slow tools many times can end."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a system is run on: sessions arrive at `rate` per second."""

    machine: str
    workload: str
    rate: float

    def __str__(self) -> str:
        model = self.machine.partition("-a100")[0]
        return f"{model} {self.workload.removeprefix('lamps-')} {self.rate:g}/s"


Wanted = tuple[Setup, str]
"""A setup and the name of a system."""


def cells(wanted: Iterable[Wanted], seconds: float, seeds: Sequence[int]) -> list[Cell]:
    """Return the runs, each once, all with the first seed first."""
    once = dict.fromkeys(wanted)
    window = seconds * CUT_OFF + LONGEST_PAUSES
    return [
        Cell(
            setup.workload,
            None,
            setup.machine,
            SYSTEMS[system],
            setup.rate,
            seed,
            seconds,
            window,
        )
        for seed in seeds
        for setup, system in once
    ]


class Found:
    """The measures of the runs that were made, by setup, system and seed."""

    def __init__(self, runs: Iterable[Measured]) -> None:
        self._by: dict[Wanted, dict[int, Measured]] = {}
        for run in runs:
            cell = run.cell
            setup = Setup(cell.machine, cell.workload, cell.rate)
            self._by.setdefault((setup, cell.policy.name), {})[cell.seed] = run

    def has(self, setup: Setup, system: str) -> bool:
        """Return whether there is a run of it."""
        return (setup, system) in self._by

    def mean(self, setup: Setup, system: str, measure: str) -> float:
        """Return a field of `Figures`, its mean over the seeds; NaN if it was not run."""
        runs = self._by.get((setup, system), {}).values()
        return estimate([float(getattr(run.figures, measure)) for run in runs]).mean

    def quotient(self, setup: Setup, system: str, base: str, measure: str) -> Estimate:
        """Return a measure over the same of `base`, paired by seed; NaN without a pair."""
        of, to = self._by.get((setup, system), {}), self._by.get((setup, base), {})
        both = [seed for seed in of if seed in to]
        if not both:
            return Estimate(math.nan, math.nan, 0)
        values = (
            [float(getattr(runs[seed].figures, measure)) for seed in both] for runs in (of, to)
        )
        return ratio(*values)
