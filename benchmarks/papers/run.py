"""What the papers' scripts share: simulated runs that are kept, and tables beside the paper's.

A script lists cells (`caesura.simulator.study.plan.Cell`), has them run with `run_cells`, and
hands rows to `show` and `write`. Runs are kept in `.cache/papers` under a digest of all that makes
them, so that a script that was interrupted goes on where it was, and a finished one only reads.
"""

import argparse
import hashlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.evidence.tables import add_option, tell
from caesura.simulator.results import RunResult
from caesura.simulator.study.figures import Figures, figures
from caesura.simulator.study.plan import WARM_UP, Cell
from caesura.simulator.study.pool import Task, run_all
from caesura.simulator.study.store import digest_of, file_name, read_run
from caesura.simulator.study.work import Work, simulate_cell

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "papers"

JOBS = 2
"""Processes at most, unless a script is told otherwise."""

WIDTH = 140
"""Columns of the output where there is no terminal to ask."""

Number = float | str | None
"""A figure: a number, words (`1.6x to 2x`), or nothing."""


# -- running -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """A cell, its measures, and the file of its whole run."""

    cell: Cell
    figures: Figures
    task: Task

    def run(self) -> RunResult:
        """Read the whole run; raises `FileNotFoundError` if it was removed."""
        run = read_run(self.task.path, self.task.digest)
        if run is None:
            raise FileNotFoundError(self.task.path)
        return run


def run_cells(
    cells: Sequence[Cell],
    *,
    work: Work = simulate_cell,
    code: Iterable[Path] = (),
    jobs: int = JOBS,
    warm_up: float = WARM_UP,
    closed: bool = False,
    cache: Path = CACHE,
    console: Console | None = None,
) -> list[Measured]:
    """Run what the cache does not hold; return the cells that ran, in their order.

    `work` makes a run (a function of a module); where it depends on more code than that of the
    rooms, `code` names these files, and a change in them repeats the runs. Sessions that arrive
    in the first `warm_up` part of a cell's seconds are not counted; in a `closed` loop it is that
    part of the time until the last session begins. A run that fails is reported on the console
    (stderr by default) and left out.

    Raises `EngineFailed` if a process died, and what interrupts it: what has ended is kept.
    """
    console = console or Console(stderr=True)
    folder = cache / _stamp(code)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [_task(cell, folder) for cell in cells]
    once = {task.path: task for task in tasks}
    missing = [task for task in once.values() if read_run(task.path, task.digest) is None]
    with _watching(console, len(once) - len(missing)) as watch:
        watch.planned(len(missing), 0)
        failures = run_all(missing, jobs, work, watch)
    for failure in failures:
        console.print(f"{failure.cell}: {failure.reason}", markup=False, soft_wrap=True)
    measured = (_measured(task, warm_up, closed) for task in tasks)
    return [found for found in measured if found is not None]


def _task(cell: Cell, folder: Path) -> Task:
    digest = digest_of(cell)
    return Task(cell, folder / file_name(cell, digest), digest)


def _stamp(code: Iterable[Path]) -> str:
    told = hashlib.sha256()
    for path in code:
        told.update(path.read_bytes())
    return told.hexdigest()[:12]


def _measured(task: Task, warm_up: float, closed: bool) -> Measured | None:
    run = read_run(task.path, task.digest)
    if run is None:
        return None
    last = max((session.arrival for session in run.sessions), default=0.0)
    end = math.nextafter(last, math.inf) if closed else task.cell.seconds
    return Measured(task.cell, figures(run, end * warm_up, end), task)


class _Watch:
    """Moves a bar in a terminal, and writes a line per run elsewhere."""

    def __init__(self, console: Console, progress: Progress | None, kept: int) -> None:
        self._console, self._progress, self._kept = console, progress, kept
        self._task = None if progress is None else progress.add_task("")
        self._missing = self._ended = 0

    def planned(self, runs: int, kept: int) -> None:
        self._missing = runs
        if self._progress is not None and self._task is not None:
            text = f"{runs} runs, {self._kept} more kept from before"
            self._progress.update(self._task, total=runs, description=text)

    def moved(self, cell: Cell, at: float) -> None:
        if self._progress is not None and self._task is not None:
            text = f"{cell}, at {at:,.0f} s"
            self._progress.update(self._task, description=escape(text))

    def ended(self, cell: Cell) -> None:
        self._ended += 1
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=self._ended)
        else:
            self._console.print(f"[{self._ended}] {cell}", markup=False, soft_wrap=True)


@contextmanager
def _watching(console: Console, kept: int) -> Iterator[_Watch]:
    if not console.is_terminal:
        yield _Watch(console, None, kept)
        return
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _Watch(console, progress, kept)


# -- measures over cells -------------------------------------------------------------------------


def mean_by(
    runs: Iterable[Measured], key: Callable[[Cell], object], value: Callable[[Measured], float]
) -> dict[object, float]:
    """Return the mean of a value over the runs that have the same key, as over seeds."""
    found: dict[object, list[float]] = {}
    for run in runs:
        found.setdefault(key(run.cell), []).append(value(run))
    return {name: statistics.fmean(values) for name, values in found.items()}


def crossing(curve: Mapping[float, float], level: float) -> float | None:
    """Return the rate at which a curve (rate to value) first rises above a level.

    Interpolated linearly in the logarithm of the value between the two rates around it. None if
    the curve does not: it begins above the level, or stays below it.
    """
    points = sorted(curve.items())
    for (rate, value), (next_rate, next_value) in itertools.pairwise(points):
        if value <= level < next_value:
            part = math.log(level / value) / math.log(next_value / value)
            return rate + part * (next_rate - rate)
    return None


# -- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the paper and ours, in the same unit; `why` says why they differ.

    `digits` are the significant ones that are shown of numbers.
    """

    what: str
    paper: Number
    ours: Number
    why: str = ""
    digits: int = 3

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return it as text, the ratio ours / paper among it where both are numbers."""
        paper, ours = self.paper, self.ours
        ratio = ""
        if isinstance(paper, float | int) and isinstance(ours, float | int):
            ratio = f"{ours / paper:.2f}" if paper and not math.isnan(ours) else ""
        texts = (number(each, self.digits) for each in (paper, ours))
        return self.what, *texts, ratio, self.why


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: a title, a line on where the numbers come from, columns, and rows of text."""

    title: str
    about: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def beside_the_paper(title: str, about: str, rows: Iterable[Row]) -> Sheet:
    """Return the table `figure | paper's | ours | ratio`, and why they differ where a row says."""
    found = list(rows)
    columns = ("figure", "paper's", "ours", "ratio", "why they differ")
    shown = len(columns) if any(row.why for row in found) else len(columns) - 1
    return Sheet(title, about, columns[:shown], tuple(row.cells()[:shown] for row in found))


def number(value: Number, digits: int = 3) -> str:
    """Return a figure as text, with so many significant digits and never an exponent."""
    if value is None or isinstance(value, str):
        return value or "-"
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def show(sheets: Iterable[Sheet], console: Console | None = None) -> None:
    """Print tables."""
    console = console or Console()
    if not console.is_terminal:
        console = Console(width=WIDTH, file=console.file)
    for sheet in sheets:
        table = Table(title=sheet.title, title_justify="left", caption=sheet.about)
        for index, column in enumerate(sheet.columns):
            wordy = index == 0 or column.startswith("why")
            table.add_column(column, justify="left" if wordy else "right")
        for row in sheet.rows:
            table.add_row(*map(escape, row))
        console.print(table, highlight=False)


def markdown(sheet: Sheet) -> str:
    """Return a table in Markdown."""
    rules = ("---", *("---:" for _ in sheet.columns[1:]))
    lines = [sheet.columns, rules, *sheet.rows]
    body = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)
    return f"### {sheet.title}\n\n{sheet.about}\n\n{body}\n"


def as_told(sheet: Sheet) -> Told:
    """Return a table as data for `benchmarks.evidence`, without the paper's name in its title."""
    return Told.of(sheet.columns, sheet.rows, f"{sheet.title} ({sheet.about})")


def write(sheets: Sequence[Sheet], path: Path, tables: Path | None = None) -> None:
    """Write tables as Markdown, and as data if `tables` names a file; raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(markdown, sheets)), encoding="utf-8")
    tell(tables, map(as_told, sheets))


# -- options -------------------------------------------------------------------------------------


def options(about: str, *, seconds: float, seeds: Sequence[int]) -> argparse.ArgumentParser:
    """Return the options that all scripts have: quick, seconds, seeds, jobs and out.

    `about` is the script's docstring; `seconds` and `seeds` are those of a full run. With
    `--quick` a script takes few cells of 300 s and one seed; see `settled`.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few cells, 300 s, one seed")
    parser.add_argument("--seconds", type=float, help=f"arrivals span (default {seconds:g})")
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: " + " ".join(map(str, seeds))
    )
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes (default %(default)s)")
    parser.add_argument("--out", type=Path, default=CACHE, help="folder for tables as Markdown")
    add_option(parser)
    parser.set_defaults(full_seconds=seconds, full_seeds=tuple(seeds))
    return parser


def settled(args: argparse.Namespace) -> tuple[float, tuple[int, ...]]:
    """Return the seconds and the seeds that the options of `options` come to."""
    seconds = args.seconds or (300.0 if args.quick else args.full_seconds)
    seeds = tuple(args.seeds or (args.full_seeds[:1] if args.quick else args.full_seeds))
    return seconds, seeds
