"""Runs in processes of their own, used again and again since importing vLLM takes seconds."""

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from caesura.scheduler.errors import EngineFailed
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.store import write_run
from caesura.simulator.study.work import Work

ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
"""Of the workers: nothing may depend on hashes, and each is to keep one core busy."""

POLL_SECONDS = 0.2
NEWS_SECONDS = 0.5
"""How often a worker tells where it is."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell that is to be run, and the file and digest under which its run is kept."""

    cell: Cell
    path: Path
    digest: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that raised; `reason` is its error in a line."""

    cell: Cell
    reason: str


class Watch(Protocol):
    """Somebody who watches a study being made."""

    def planned(self, runs: int, kept: int) -> None:
        """There are so many runs, and so many of them are kept from before."""
        ...

    def moved(self, cell: Cell, at: float) -> None:
        """A run is at this second of its simulation; 0.0: it begins."""
        ...

    def ended(self, cell: Cell) -> None:
        """A run is over, kept or failed."""
        ...


def run_all(tasks: Sequence[Task], jobs: int, work: Work, watch: Watch) -> list[Failure]:
    """Run the tasks, at most `jobs` at a time; each run is kept in its file as it ends.

    Returns those that raised. Raises `EngineFailed` if a process died, and what interrupts it
    (Ctrl-C): the processes are ended then, and what they had finished is kept.
    """
    if not tasks:
        return []
    context = multiprocessing.get_context("spawn")
    news = context.SimpleQueue()
    before = set(multiprocessing.active_children())
    with (
        _environment(ENVIRONMENT),
        ProcessPoolExecutor(min(jobs, len(tasks)), context, _begin, (news,)) as pool,
    ):
        try:
            with _deaf_children():
                futures = {
                    pool.submit(_run, work, task, number): number
                    for number, task in enumerate(tasks)
                }
            return list(_await(futures, tasks, news, watch))
        except BrokenProcessPool:
            raise EngineFailed(
                "a process that simulated has died, perhaps for want of memory: try fewer --jobs;"
                " what had ended is kept"
            ) from None
        except BaseException:
            # Runs take minutes, and their files are written at once or not at all.
            _end(set(multiprocessing.active_children()) - before)
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


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes that start meanwhile: a hash seed is read at the start."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Keep Ctrl-C from the processes that start meanwhile, from their first moment on.

    A terminal sends it to all, and the parent alone acts on it, if need be when this is over: a
    mask is inherited.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: set[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


# -- in a worker ---------------------------------------------------------------------------------

_news: Any = None


def _begin(news: Any) -> None:
    """Set up a worker."""
    global _news
    _news = news
    # vLLM warns of what it lacks to run a model, and none is run.
    logging.getLogger("vllm").setLevel(logging.ERROR)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End when the parent is gone: killed, it cannot tell anybody to stop."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
