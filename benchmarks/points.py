"""A simulated study as one table: a row for each rate and policy, a column for each measure."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.evidence.tables import Table
from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.study.conduct import conduct
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point, summarise
from caesura.simulator.study.tables import BOUND, BY_NAME, estimated

CUT = "*"
"""The mark after the name of a policy with sessions that were cut off."""


class Incomplete(Exception):
    """Runs failed, so that there is no table; they are named on the console."""


def points_of(study: Study, runs: Path, jobs: int, console: Console) -> list[Point]:
    """Run what is not kept in `runs`, and return a point for each rate and policy.

    Raises `Incomplete` if a run failed.
    """
    with watching(study, console, quiet=False) as progress:
        outcome = conduct(study, runs, jobs, watch=progress)
    for failure in outcome.failures:
        console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
    if outcome.failures:
        raise Incomplete(f"{len(outcome.failures)} runs failed")
    return summarise(outcome)


def table_of(points: Sequence[Point], measures: Sequence[str], first: str = "sessions/s") -> Table:
    """Return the means of these measures, with 95 % intervals from three seeds on.

    A point's first cell is its rate, or what `first` says if its machine tells points apart.
    """
    columns = (first, "policy", *(BY_NAME[name].heading for name in measures))
    rows = []
    for point in points:
        found = (estimated(point.means[name], BY_NAME[name].scale) for name in measures)
        rows.append((f"{point.rate:g}", label(point), *found))
    return Table.of(columns, rows)


def label(point: Point) -> str:
    """Return a policy's name with its marks."""
    bound = BOUND if point.policy.free_link else ""
    return f"`{point.name}`{bound}{CUT if point.unfinished else ''}"
