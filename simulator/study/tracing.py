"""Traces of a study: one run of every policy under the same load, with all its records."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from caesura.simulator.study.conduct import Unwatched
from caesura.simulator.study.digest import digest_of, file_name
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.pool import Failure, Task, Watch, run_all
from caesura.simulator.study.store import read_run
from caesura.simulator.study.work import Work, trace_cell
from caesura.simulator.trace import write_trace


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
