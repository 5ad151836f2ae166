"""The implementation of `caesura eval`."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from caesura.runtime.errors import UsageError
from caesura.runtime.evals.case import Case
from caesura.runtime.evals.checks import Judge
from caesura.runtime.evals.comparison import compare
from caesura.runtime.evals.evaluation import Evaluation, Subject
from caesura.runtime.evals.files import cases
from caesura.runtime.evals.report import Report, Sample
from caesura.runtime.sdk.agent import Agent
from caesura.tools.config.functions import imported


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command was asked for."""

    file: Path
    samples: int = 1
    concurrency: int = 8
    names: Sequence[str] = ()
    judge: str | None = None
    least: float = 1.0
    out: Path | None = None
    junit: Path | None = None
    compare: Path | None = None


@asynccontextmanager
async def named(reference: str) -> AsyncIterator[Subject]:
    """Yield the agent or the function that `module:attribute` names; at the end, close an agent.

    Raises `UsageError` for anything else, and SetupError where it cannot be imported.
    """
    subject = imported(reference, None)
    if not callable(subject) and not isinstance(subject, Agent):
        raise UsageError(
            f"--agent {reference} is no agent and no function of a prompt, got {subject!r}"
        )
    try:
        yield subject
    finally:
        if isinstance(subject, Agent):
            await subject.aclose()


async def run(wanted: Wanted, subject: AbstractAsyncContextManager[Subject]) -> int:
    """Evaluate, print the table and write the files; return how many cases failed.

    An interruption prints and writes what is done, and is raised again. Raises `UsageError` and
    SetupError, before any answer is made, for what is wrong.
    """
    before = None if wanted.compare is None else Report.load(wanted.compare)
    judge = None if wanted.judge is None else Judge("", wanted.judge)
    chosen = _chosen(cases(wanted.file, judge), wanted)
    async with subject as found:
        return await _evaluated(found, chosen, wanted, before, judge)


async def _evaluated(
    subject: Subject,
    chosen: Sequence[Case],
    wanted: Wanted,
    before: Report | None,
    judge: Judge | None,
) -> int:
    with _progress(len(chosen) * wanted.samples) as told:
        evaluation = Evaluation(
            subject, chosen, samples=wanted.samples, concurrency=wanted.concurrency, told=told
        )
        try:
            await evaluation.run()
        finally:
            _tell(evaluation.report, wanted, before)
            if judge is not None:
                await judge.aclose()
    return len(evaluation.report.failed(wanted.least))


def _chosen(found: list[Case], wanted: Wanted) -> list[Case]:
    names = [case.name for case in found]
    for name in wanted.names:
        if name not in names:
            raise UsageError(f"--case {name!r} is not in {wanted.file}; there are: {names}")
    return [case for case in found if not wanted.names or case.name in wanted.names]


def _tell(report: Report, wanted: Wanted, before: Report | None) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(report.table())
    if before is not None:
        changes = compare(before, report)
        if changes.better or changes.worse:
            console.print(changes.table())
        console.print(changes.summary, highlight=False, soft_wrap=True, markup=False)
    if wanted.out is not None:
        report.save(wanted.out)
    if wanted.junit is not None:
        report.junit(wanted.junit, wanted.least)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Case, Sample], None]]:
    """Show a bar on stderr, if that is a terminal; yield what is told of each sample."""
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    shown = Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    failed = 0
    with shown:
        task = shown.add_task("answers", total=total)

        def told(case: Case, sample: Sample) -> None:
            nonlocal failed
            failed += not sample.passed
            shown.update(task, advance=1, description=f"answers, {failed} failed")

        yield told
