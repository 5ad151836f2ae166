"""Conduct a study: reuse saved runs, simulate the missing ones, and measure all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.simulator.results import RunResult
from caesura.simulator.study.digest import digest_of, file_name
from caesura.simulator.study.figures import Figures, figures
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.pool import Failure, Task, Watch, run_all
from caesura.simulator.study.store import read_run
from caesura.simulator.study.work import Work, simulate_cell


@dataclass(frozen=True, slots=True)
class Made:
    """One run of a study and its measures; the run itself is in its file.

    `predictions` are those of the run, see `RunResult`.
    """

    cell: Cell
    figures: Figures
    task: Task
    predictions: tuple[Mapping[str, Any], ...] = ()

    def run(self) -> RunResult | None:
        """Return the whole run from its file; None if the file is gone."""
        return read_run(self.task.path, self.task.digest)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a study: the runs in the order of its cells, and the failures."""

    study: Study
    made: tuple[Made, ...]
    failures: tuple[Failure, ...]


class Unwatched:
    """A `Watch` that ignores all progress."""

    def planned(self, runs: int, kept: int) -> None:
        """Do nothing."""

    def moved(self, cell: Cell, at: float) -> None:
        """Do nothing."""

    def ended(self, cell: Cell) -> None:
        """Do nothing."""


def conduct(
    study: Study,
    runs: Path,
    jobs: int,
    *,
    work: Work = simulate_cell,
    watch: Watch | None = None,
) -> Outcome:
    """Simulate the runs of a study that the folder `runs` lacks, and return all with measures.

    Raises `OSError` if the folder cannot be written, `EngineFailed` if a process died, and
    `KeyboardInterrupt`.
    """
    watch = watch or Unwatched()
    tasks = [_task(cell, runs) for cell in study.cells()]
    known = {task.path: _measured(task, study) for task in tasks}
    missing = [task for task in tasks if known[task.path] is None]
    runs.mkdir(parents=True, exist_ok=True)
    watch.planned(len(tasks), len(tasks) - len(missing))
    failures = run_all(missing, jobs, work, watch)
    made = [known[task.path] or _measured(task, study) for task in tasks]
    return Outcome(study, tuple(each for each in made if each is not None), tuple(failures))


def _task(cell: Cell, runs: Path) -> Task:
    digest = digest_of(cell)
    return Task(cell, runs / file_name(cell, digest), digest)


def _measured(task: Task, study: Study) -> Made | None:
    run = read_run(task.path, task.digest)
    if run is None:
        return None
    last = max((session.arrival for session in run.sessions), default=0.0)
    return Made(
        task.cell, figures(run, *study.counted(last), study.slo), task, tuple(run.predictions)
    )
