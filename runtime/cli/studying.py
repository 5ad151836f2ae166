"""Making a study and showing what came of it, for `caesura simulate` and `caesura replay`."""

from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.watching import watching
from caesura.scheduler.sim.report.canvas import MISSING
from caesura.scheduler.sim.report.facts import facts, notes
from caesura.scheduler.sim.report.grids import ratio_grids, service_grids
from caesura.scheduler.sim.report.measures import HEADLINE
from caesura.scheduler.sim.report.table import to_rich
from caesura.scheduler.sim.report.write import write_report
from caesura.scheduler.sim.study.conduct import Outcome, conduct
from caesura.scheduler.sim.study.plan import Study, StudyError
from caesura.scheduler.sim.study.summary import summarise
from caesura.scheduler.sim.study.work import Work, simulate_cell

PLAIN_WIDTH = 140
"""Columns of the output where there is no terminal to ask."""

INTERRUPTED = 130


def make_study(study: Study, out: Path, jobs: int, quiet: bool, work: Work = simulate_cell) -> None:
    """Make a study, write its report into the folder `out`, and show it.

    Raises `StudyError` if nothing can be written there, `EngineFailed` if a process died, and
    `typer.Exit` when it was interrupted (130) or a run has failed (1).
    """
    runs = out / "runs"
    errors = Console(stderr=True)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with watching(study, errors, quiet) as watch:
            outcome = conduct(study, runs, jobs, work=work, watch=watch)
        report = write_report(outcome, out)
    except KeyboardInterrupt:
        errors.print(
            f"interrupted: {sum(1 for _ in runs.glob('*.json.gz'))} runs are kept in {runs}, and"
            " the same command goes on from there",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        raise StudyError(f"{out} cannot be written: {error.strerror or error}") from error
    show(outcome)
    if not report.charts:
        errors.print(MISSING, markup=False, highlight=False, soft_wrap=True)
    typer.echo(f"report: {report.page}")
    if outcome.failures:
        raise typer.Exit(1)


def show(outcome: Outcome) -> None:
    """Print what was run, and what users get of it."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    study, points = outcome.study, summarise(outcome)
    for name, value in facts(study):
        console.print(f"[dim]{name:9}[/dim] {escape(value)}", highlight=False, soft_wrap=True)
    console.print()
    for grid in (
        *service_grids(study, points, HEADLINE),
        *ratio_grids(study, points, HEADLINE),
    ):
        console.print(to_rich(grid), highlight=False)
    for note in notes(outcome):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
