"""Conducts many runs in worker processes within a budget; Ctrl-C keeps what was counted."""

import logging
import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from benchmarks.campaign.report import Defect, Outcome

Job = Callable[[int], Outcome]
"""Makes the run of an index."""


def conduct(
    job: Job, indices: Iterable[int], *, jobs: int, budget: float, wanted: int, title: str
) -> tuple[Outcome, bool]:
    """Make runs until `wanted` sessions are done or `budget` seconds are over.

    Returns the sum, and whether Ctrl-C ended it. A run that has begun is finished within the
    budget's end, so that every count is of whole runs.
    """
    total, broken_off, ends_at = Outcome(), False, time.monotonic() + budget
    with progress(title, wanted) as advance, _results(job, indices, jobs) as outcomes:
        try:
            for outcome in outcomes:
                total.add(outcome)
                advance(outcome.sessions, len(total.defects))
                tell(outcome.defects)
                if total.sessions >= wanted or time.monotonic() >= ends_at:
                    break
        except KeyboardInterrupt:
            broken_off = True
    return total, broken_off


def tell(defects: Sequence[Defect]) -> None:
    """Say at once what was found, since a campaign lasts."""
    for one in defects:
        print(f"{one.kind}: {one.again}\n    {one.last_line}", file=sys.stderr, flush=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the campaign with its report, in the background too."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def _results(job: Job, indices: Iterable[int], jobs: int) -> Iterator[Iterator[Outcome]]:
    if jobs == 1:
        _quiet()
        try:
            yield map(job, indices)
        finally:
            logging.disable(logging.NOTSET)
        return
    # Spawned, so that no worker inherits a lock or an engine's threads.
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_worker) as pool:
        yield _in_turn(pool, job, iter(indices), jobs)


def _in_turn(pool: Any, job: Job, indices: Iterator[int], jobs: int) -> Iterator[Outcome]:
    """Yield outcomes; runs are handed out as others end, so that few are lost at the end."""
    under_way = [pool.apply_async(job, (index,)) for index in islice(indices, 2 * jobs)]
    while under_way:
        result = under_way.pop(0)
        outcome: Outcome = result.get()
        under_way.extend(pool.apply_async(job, (index,)) for index in islice(indices, 1))
        yield outcome


def _worker() -> None:
    for one in (signal.SIGINT, signal.SIGTERM):  # the parent ends the workers
        signal.signal(one, signal.SIG_IGN)
    _quiet()


def _quiet() -> None:
    """Faults are expected to be logged; the report says what matters."""
    logging.disable(logging.ERROR)


@contextmanager
def progress(title: str, wanted: int) -> Iterator[Callable[[int, int], None]]:
    """Show a bar in a terminal, and a line now and then elsewhere; yields what moves it."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title, wanted, console)
        return
    columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task(title, total=wanted)

        def advance(sessions: int, defects: int) -> None:
            bar.update(task, advance=sessions, description=f"{title}: {defects} defects")

        yield advance


def _lines(title: str, wanted: int, console: Console) -> Callable[[int, int], None]:
    done, told = 0, 0

    def advance(sessions: int, defects: int) -> None:
        nonlocal done, told
        done += sessions
        if done * 20 // wanted > told:
            told = done * 20 // wanted
            text = f"{title}: {done} of {wanted}, {defects} defects"
            console.print(text, highlight=False)

    return advance
