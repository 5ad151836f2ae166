"""Makes the runs that figures ask for, once each, and finds their measures again.

Runs are kept in `.cache/papers`, under a digest of the settings and of all code that makes them.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.lamps_systems import SYSTEMS
from caesura.scheduler.sim.study.digest import digest_of, file_name
from caesura.scheduler.sim.study.figures import Figures, figures
from caesura.scheduler.sim.study.intervals import Estimate, estimate, ratio
from caesura.scheduler.sim.study.plan import WARM_UP, Cell
from caesura.scheduler.sim.study.pool import Task, run_all
from caesura.scheduler.sim.study.store import read_run
from caesura.scheduler.sim.study.work import simulate_cell

CACHE = Path(".cache/papers")

CUT_OFF = 4.0
"""A run is cut off after so many times the span of its arrivals."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a system is run on: sessions arrive at `rate` per second."""

    machine: str
    workload: str
    rate: float

    def __str__(self) -> str:
        return f"{self.workload}, {self.rate:g}/s, {self.machine}"


@dataclass(frozen=True, slots=True)
class Extent:
    """How long arrivals span, in simulated seconds, and the seeds."""

    seconds: float
    seeds: tuple[int, ...]


Wanted = tuple[Setup, str]
"""A setup and the name of a system."""

Measured = dict[Wanted, list[Figures]]
"""The measures of each, one per seed."""


class Progress:
    """Tells how many runs are done, on standard error."""

    def __init__(self) -> None:
        self.left = 0

    def planned(self, runs: int, kept: int) -> None:
        """Tell how many runs there are to make."""
        self.left = runs - kept
        print(f"{runs} runs, {kept} of them kept from before", file=sys.stderr, flush=True)

    def moved(self, cell: Cell, at: float) -> None:
        """Do nothing: runs take a minute."""

    def ended(self, cell: Cell) -> None:
        """Tell which run is done."""
        self.left -= 1
        print(f"  {cell.workload}, {cell}; {self.left} left", file=sys.stderr, flush=True)


def measure(wanted: Iterable[Wanted], extent: Extent, jobs: int, cache: Path = CACHE) -> Measured:
    """Return the measures of all that is wanted; what is not in `cache` is run.

    The first sixth of the arrivals is not counted. Raises `RuntimeError` for a run that failed.
    """
    tasks = {
        (one, seed): _task(one, extent, seed, cache)
        for seed in extent.seeds
        for one in dict.fromkeys(wanted)
    }
    missing = [task for task in tasks.values() if read_run(task.path, task.digest) is None]
    progress = Progress()
    progress.planned(len(tasks), len(tasks) - len(missing))
    cache.mkdir(parents=True, exist_ok=True)
    failures = run_all(missing, jobs, simulate_cell, progress)
    if failures:
        raise RuntimeError("; ".join(f"{each.cell}: {each.reason}" for each in failures))
    found: Measured = {}
    for (one, _), task in tasks.items():
        run = read_run(task.path, task.digest)
        if run is None:
            raise RuntimeError(f"{task.path} cannot be read")
        measures = figures(run, extent.seconds * WARM_UP, extent.seconds)
        found.setdefault(one, []).append(measures)
    return found


def value(found: Measured, wanted: Wanted, name: str) -> Estimate:
    """Return a measure's mean over the seeds; NaN if that was not run."""
    return estimate([float(getattr(each, name)) for each in found.get(wanted, [])])


def quotient(found: Measured, setup: Setup, system: str, base: str, name: str) -> Estimate:
    """Return a measure of a system over that of another one, paired by seed; NaN if not run."""
    of, to = (_values(found.get((setup, one), []), name) for one in (system, base))
    if len(of) != len(to):
        return Estimate(math.nan, math.nan, 0)
    return ratio(of, to)


def _values(runs: Sequence[Figures], name: str) -> list[float]:
    return [float(getattr(each, name)) for each in runs]


def _task(wanted: Wanted, extent: Extent, seed: int, cache: Path) -> Task:
    setup, system = wanted
    cell = Cell(
        setup.workload,
        None,
        setup.machine,
        SYSTEMS[system],
        setup.rate,
        seed,
        extent.seconds,
        extent.seconds * CUT_OFF,
    )
    digest = digest_of(cell)
    return Task(cell, cache / file_name(cell, digest), digest)
