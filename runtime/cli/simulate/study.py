"""Running a study and printing its results, for `caesura simulate` and `caesura replay`."""

from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.simulate.progress import watching
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Recording
from caesura.runtime.recording.files import write_html
from caesura.simulator.report.canvas import MISSING
from caesura.simulator.report.facts import facts, notes
from caesura.simulator.report.grids import ratio_grids, replica_grids, service_grids
from caesura.simulator.report.measures import HEADLINE
from caesura.simulator.report.predictions import prediction_grids
from caesura.simulator.report.table import to_rich
from caesura.simulator.report.write import write_report
from caesura.simulator.study.conduct import Outcome, conduct, trace_study
from caesura.simulator.study.plan import Study, StudyError
from caesura.simulator.study.pool import Failure
from caesura.simulator.study.summary import summarise
from caesura.simulator.study.work import Work, simulate_cell, trace_cell
from caesura.simulator.trace import read_trace

PLAIN_WIDTH = 140
"""The columns of the output if it is not a terminal."""

INTERRUPTED = 130

FOLDER, PAGE = "trace", "trace.html"
"""The folder of the traces, and the page that shows them."""


def make_study(
    study: Study,
    out: Path,
    jobs: int,
    quiet: bool,
    trace: bool = False,
    *,
    work: Work = simulate_cell,
    tracing: Work = trace_cell,
) -> None:
    """Run a study, write its report into the folder `out`, and print it.

    With `trace`, also write each policy's handling of every request under the first load.

    Raises `StudyError` if `out` cannot be written, and `EngineFailed` if a process died. Raises
    `typer.Exit` after an interrupt (130) or a failed run (1).
    """
    runs = out / "runs"
    errors = Console(stderr=True)
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with watching(study, errors, quiet) as watch:
            outcome = conduct(study, runs, jobs, work=work, watch=watch)
        traced = _trace(study, out, jobs, tracing, errors, quiet) if trace else None
        report = write_report(outcome, out, PAGE if traced and traced.page else "")
    except KeyboardInterrupt:
        errors.print(
            f"interrupted: {sum(1 for _ in runs.glob('*.json.gz'))} runs are kept in {runs};"
            " the same command continues the study",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        raise StudyError(
            f"{out} cannot be written: {error.strerror or error}; choose another folder with --out"
        ) from error
    show(outcome)
    if not report.charts:
        errors.print(MISSING, markup=False, highlight=False, soft_wrap=True)
    typer.echo(f"report: {report.page}")
    if traced is not None:
        typer.echo(f"trace: {traced.page or out / FOLDER}")
    if outcome.failures or (traced is not None and traced.failures):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Traced:
    """The page that shows the traces, or None if it could not be made, and the failed runs."""

    page: Path | None
    failures: tuple[Failure, ...]


def _trace(study: Study, out: Path, jobs: int, work: Work, errors: Console, quiet: bool) -> _Traced:
    """Write `trace/POLICY.jsonl` for each policy, and the page that shows them."""
    with watching(study, errors, quiet) as watch:
        traces = trace_study(study, out / FOLDER, jobs, work=work, watch=watch)
    for failure in traces.failures:
        told = f"not traced: {failure.cell}: {failure.reason}"
        errors.print(told, markup=False, highlight=False, soft_wrap=True)
    if not traces.files:
        return _Traced(None, traces.failures)
    try:
        held = [read_trace(path) for path in traces.files]
        write_html([(Recording.from_public(head), entries) for head, entries in held], out / PAGE)
    except UsageError as error:  # for example if the page was not built
        errors.print(f"no {PAGE}: {error}", markup=False, highlight=False, soft_wrap=True)
        return _Traced(None, traces.failures)
    return _Traced(out / PAGE, traces.failures)


def show(outcome: Outcome) -> None:
    """Print the study's facts and its results."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    study, points = outcome.study, summarise(outcome)
    for name, value in facts(study):
        console.print(f"[dim]{name:9}[/dim] {escape(value)}", highlight=False, soft_wrap=True)
    console.print()
    for grid in (
        *service_grids(study, points, HEADLINE),
        *replica_grids(study, points),
        *ratio_grids(study, points, HEADLINE),
        *prediction_grids(outcome),
    ):
        console.print(to_rich(grid), highlight=False)
    for note in notes(outcome):
        console.print(note, markup=False, highlight=False, soft_wrap=True)
