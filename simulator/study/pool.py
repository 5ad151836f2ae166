"""Run simulations in worker processes, which are reused since importing vLLM takes seconds."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from caesura.scheduler.errors import EngineFailed
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.store import write_run
from caesura.simulator.study.work import Work
from caesura.simulator.workers import Workers, in_a_worker

POLL_SECONDS = 0.2
NEWS_SECONDS = 0.5
"""The interval at which a worker reports its progress."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to run, and the file and digest under which its run is saved."""

    cell: Cell
    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that raised an error; `reason` is the error in one line."""

    cell: Cell
    reason: str


class Watch(Protocol):
    """Receives the progress of a study."""

    def planned(self, runs: int, kept: int) -> None:
        """Report that the study has `runs` runs, of which `kept` are saved from before."""
        ...

    def moved(self, cell: Cell, at: float) -> None:
        """Report that a run has reached the simulated second `at`; 0.0 is its beginning."""
        ...

    def ended(self, cell: Cell) -> None:
        """Report that a run has ended or failed."""
        ...


def run_all(tasks: Sequence[Task], jobs: int, work: Work, watch: Watch) -> list[Failure]:
    """Run the tasks, at most `jobs` at a time, save each run as it ends, and return the failures.

    Raises `EngineFailed` if vLLM is missing or a process died, and `KeyboardInterrupt` (Ctrl-C).
    The processes are ended then, and finished runs are kept.
    """
    if not tasks:
        return []
    if find_spec("vllm") is None:
        raise EngineFailed(
            "simulations run vLLM's scheduler, and vLLM is not installed: run `caesura doctor` to"
            " see how to install it"
        )
    workers = Workers((work, tasks))
    news = workers.SimpleQueue()
    with ProcessPoolExecutor(min(jobs, len(tasks)), workers, _begin, (news,)) as pool:
        try:
            futures = {
                pool.submit(_run, work, task, number): number for number, task in enumerate(tasks)
            }
            return list(_await(futures, tasks, news, watch))
        except BrokenProcessPool:
            raise EngineFailed(
                "a simulation worker died, possibly out of memory: retry with fewer --jobs"
                " (finished runs are kept)"
            ) from None
        except BaseException:
            # Waiting would take minutes, and ending a worker cannot leave part of a file.
            workers.end()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _await(
    futures: dict[Future[None], int], tasks: Sequence[Task], news: Any, watch: Watch
) -> Iterator[Failure]:
    pending = set(futures)
    while pending:
        done, pending = wait(pending, POLL_SECONDS, FIRST_COMPLETED)
        while not news.empty():
            number, at = news.get()
            watch.moved(tasks[number].cell, at)
        for future in sorted(done, key=lambda each: futures[each]):
            cell = tasks[futures[future]].cell
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                raise error
            watch.ended(cell)
            if error is not None:
                yield Failure(cell, f"{type(error).__name__}: {error}")


# -- in a worker ---------------------------------------------------------------------------------

_news: Any = None


def _begin(news: Any) -> None:
    """Set up a worker process."""
    global _news
    _news = news
    in_a_worker()


def _run(work: Work, task: Task, number: int) -> None:
    news = _news
    told = time.monotonic()
    news.put((number, 0.0))

    def progress(at: float) -> None:
        nonlocal told
        if (now := time.monotonic()) - told > NEWS_SECONDS:
            told = now
            news.put((number, at))

    write_run(task.path, task.digest, work(task.cell, progress))
