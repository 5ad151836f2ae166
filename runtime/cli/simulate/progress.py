"""The progress of a study: a bar in a terminal, a line per run elsewhere, or none."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from caesura.runtime.cli.show import shorten
from caesura.simulator.study.conduct import Unwatched
from caesura.simulator.study.plan import Cell, Study
from caesura.simulator.study.pool import Watch

MAX_SHARE_UNFINISHED = 0.95
"""The largest share shown for a run that has not ended, since its last sessions may take long."""

WIDTH = 70
"""Characters of the description of running runs."""


@contextmanager
def watching(study: Study, console: Console, quiet: bool) -> Iterator[Watch]:
    """Yield a watch that shows a study's progress; remove the bar at the end."""
    if quiet:
        yield Unwatched()
    elif not console.is_terminal:
        yield Lines(console)
    else:
        columns = (
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            yield Bar(progress, study.window or study.seconds)


class Lines:
    """Prints the number of runs, and a line for each run that ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._missing = 0
        self._ended = 0

    def planned(self, runs: int, kept: int) -> None:
        """Print the number of runs."""
        self._missing = runs - kept
        self._console.print(_plan(runs, kept), markup=False, highlight=False)

    def moved(self, cell: Cell, at: float) -> None:
        """Print nothing."""

    def ended(self, cell: Cell) -> None:
        """Print the run that has ended."""
        self._ended += 1
        text = f"[{self._ended}/{self._missing}] {cell}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class Bar:
    """One bar for the study, with each running run and its simulated second.

    Arrivals span `seconds` of the simulation.
    """

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress = progress
        self._seconds = seconds
        self._running: dict[int, tuple[Cell, float]] = {}
        self._ended = 0
        self._task = progress.add_task("")

    def planned(self, runs: int, kept: int) -> None:
        """Set the number of runs."""
        self._progress.update(self._task, total=runs - kept, description=_plan(runs, kept))

    def moved(self, cell: Cell, at: float) -> None:
        """Update a run that has reached the simulated second `at`."""
        self._running[id(cell)] = cell, at
        self._draw()

    def ended(self, cell: Cell) -> None:
        """Remove a run that has ended."""
        self._running.pop(id(cell), None)
        self._ended += 1
        self._draw()

    def _draw(self) -> None:
        running = self._running.values()
        done = self._ended + sum(min(at / self._seconds, MAX_SHARE_UNFINISHED) for _, at in running)
        said = "; ".join(f"{cell}, at {at:,.0f} s" for cell, at in running)
        text = escape(shorten(said, WIDTH))
        self._progress.update(self._task, completed=done, description=text)


def _plan(runs: int, kept: int) -> str:
    return f"{runs} runs, {kept} of them kept from before" if kept else f"{runs} runs"
