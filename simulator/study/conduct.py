"""Conduct a study: reuse saved runs, simulate the missing ones, and measure or trace them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caesura.simulator.results import RunResult
from caesura.simulator.study.figures import Figures, figures
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.pool import Failure, Task, Watch, run_all
from caesura.simulator.study.store import digest_of, file_name, read_run
from caesura.simulator.study.work import Work, simulate_cell, trace_cell
from caesura.simulator.trace import write_trace


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


@dataclass(frozen=True, slots=True)
class Traces:
    """The written files, in the order of the policies, and the failed runs."""

    files: tuple[Path, ...]
    failures: tuple[Failure, ...]


def trace_study(
    study: Study, folder: Path, jobs: int, *, work: Work = trace_cell, watch: Watch | None = None
) -> Traces:
    """Write a trace of every policy on the first machine, at the first rate, with the first seed.

    Each trace is the file `POLICY.jsonl` in the folder. Runs that the folder has are reused. Raises
    `OSError` if the folder cannot be written, `EngineFailed` if a process died, and
    `KeyboardInterrupt`.
    """
    cells = study.cells()[: len(study.policies)]
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    tasks = [_task(cell, runs) for cell in cells]
    missing = [task for task in tasks if read_run(task.path, task.digest) is None]
    watch = watch or Unwatched()
    watch.planned(len(tasks), len(tasks) - len(missing))
    failures = run_all(missing, jobs, work, watch)
    files = []
    for task, name in zip(tasks, file_names(study.policy_names), strict=True):
        run = read_run(task.path, task.digest)
        if run is not None:
            write_trace(run, folder / name)
            files.append(folder / name)
    return Traces(tuple(files), tuple(failures))


def file_names(policies: Sequence[str]) -> list[str]:
    """Return a file name for each policy, from the characters of its name that files may have."""
    names: list[str] = []
    for policy in policies:
        name = words = re.sub(r"[^A-Za-z0-9.]+", "-", policy)[:60].strip("-.") or "policy"
        number = 2
        while f"{name}.jsonl" in names:
            name, number = f"{words}-{number}", number + 1
        names.append(f"{name}.jsonl")
    return names


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
