"""One plan of one experiment: how long the search took, what it expects, and what a run takes."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.papers.run import CACHE
from benchmarks.papers.samullm_plans.applications import Work
from benchmarks.papers.samullm_plans.models import engines
from benchmarks.papers.samullm_plans.rows import Experiment
from caesura.planning.costs.stages import FastStages
from caesura.planning.search.follow import follow
from caesura.planning.search.strategies import SearchOptions, plan_application

DEVICES = 8
DRAWS = 3
"""Draws of the lengths with which a plan is made and checked."""

PLANNED_SEED, REAL_SEED = 100, 900
"""Seeds of the lengths that plans expect, and of those that runs have."""

RUNS = 3
"""Runs of each plan, whose lengths and step times the plan does not know."""

FOLDER = CACHE / "samullm_plans"

ROOT = Path(__file__).resolve().parents[3]
CODE = (
    ROOT / "planning" / "search",
    ROOT / "planning" / "costs" / "simulation",
    Path(__file__).parent,
)


@dataclass(frozen=True, slots=True)
class Plans:
    """The seconds of one strategy: its search, what it expects (by run), and runs' makespans.

    A search counts by the time of its processor, since other work may run beside it.
    """

    search: float
    predicted: tuple[float, ...]
    real: tuple[float, ...]
    stages: int

    @property
    def end_to_end(self) -> float:
        """Return the mean seconds of search and run together, as the paper reports."""
        return self.search + fmean(self.real)

    @property
    def error(self) -> float:
        """Return the mean relative error of the predicted makespan."""
        pairs = zip(self.predicted, self.real, strict=True)
        return fmean(abs(expected / real - 1) for expected, real in pairs)


def measured(
    experiment: Experiment, strategy: str, known: bool, *, only_kept: bool
) -> Plans | None:
    """Return the kept measurement, or one made now; None if `only_kept` and there is none."""
    path = FOLDER / f"{_digest(experiment, strategy, known)}.json"
    if path.exists():
        found = json.loads(path.read_text())
        return Plans(
            found["search"], tuple(found["predicted"]), tuple(found["real"]), found["stages"]
        )
    if only_kept:
        return None
    work = experiment.make()
    plans = _known(work, strategy) if known else _unknown(work, strategy)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(
        json.dumps(
            {"experiment": experiment.name, "strategy": strategy, "known": known} | asdict(plans)
        )
    )
    new.replace(path)
    return plans


def _unknown(work: Work, strategy: str) -> Plans:
    """Return the plan for drawn lengths, and runs with other ones and other step times."""
    simulators = [_simulator(work, work.planned(PLANNED_SEED + draw)) for draw in range(DRAWS)]
    begin = time.process_time()
    options = SearchOptions(strategy)
    choice = plan_application(work.application, work.requests, DEVICES, simulators, options=options)
    search = time.process_time() - begin
    real = [
        follow(choice.plan, _simulator(work, work.real(REAL_SEED + run), run)).seconds
        for run in range(RUNS)
    ]
    return Plans(search, (choice.plan.makespan.mean,) * RUNS, tuple(real), choice.simulated)


def _known(work: Work, strategy: str) -> Plans:
    """Return a plan for each run that knows its lengths, but not its step times."""
    search, predicted, real, stages = [], [], [], 0
    for run in range(RUNS):
        lengths = work.real(REAL_SEED + run)
        begin = time.process_time()
        simulators = [_simulator(work, lengths)]
        choice = plan_application(
            work.application, work.requests, DEVICES, simulators, options=SearchOptions(strategy)
        )
        search.append(time.process_time() - begin)
        predicted.append(choice.plan.makespan.mean)
        real.append(follow(choice.plan, _simulator(work, lengths, run)).seconds)
        stages = choice.simulated
    return Plans(fmean(search), tuple(predicted), tuple(real), stages)


def _simulator(work: Work, lengths: dict[str, int], run: int | None = None) -> FastStages:
    names = [model.name for model in work.application.models]
    return FastStages(names, work.requests, lengths, engines(run))


def _digest(experiment: Experiment, strategy: str, known: bool) -> str:
    """Return the name of a kept measurement, made of its numbers and of the code behind them."""
    values: Sequence[object] = (
        experiment.name,
        strategy,
        known,
        DRAWS,
        PLANNED_SEED,
        REAL_SEED,
        RUNS,
        DEVICES,
    )
    digest = hashlib.blake2b(repr(values).encode(), digest_size=12)
    for folder in CODE:
        for file in sorted(folder.rglob("*.py")):
            if file.name not in ("tables.py", "__main__.py", "rows.py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()
