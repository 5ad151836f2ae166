"""Goodput over load: sessions within an objective, by policy: the table of docs/study/policies.md.

    python -m benchmarks.goodput            # what is in .cache/goodput already is not run again
    python -m benchmarks.goodput --quick    # one seed and short traces: to see that it works

The order within a class was chosen with seed 0, which the reported seeds do not contain.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from caesura.runtime.cli.plan.studies import watching
from caesura.scheduler.policy.slo import Slo
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.conduct import conduct
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import summarise
from caesura.simulator.study.tables import BY_NAME, Grid, service_grids, to_markdown, to_rich

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "goodput"
PAGE = ROOT / "docs" / "study" / "policies.md"
BEGIN, END = "<!-- begin goodput -->", "<!-- end goodput -->"

SLO = Slo(2.0, 0.1)
AIMED = str(SLO).replace(",", ";")
POLICIES = (
    "caesura",
    "caesura:ranking=caesura",
    "ssjf",
    "lamps-infercept",
    "caesura:admission=past-future",
    "stock-offload",
    f"caesura:slo={AIMED}",
    f"caesura:slo={AIMED},ranking=caesura",
)
SHOWN = ("goodput_sessions", "goodput_share", "goodput_tokens", "latency_mean", "latency_p99")

STUDY = Study(
    workload="mix:tool=qa",
    policies=tuple(parse_policy(name) for name in POLICIES),
    rates=(3.0, 4.0, 5.0),
    seeds=(61, 62),
    machines=("gptj-6b-a100-40g",),
    seconds=100.0,
    slo=SLO,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, one rate, 30 s of arrivals")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    args = parser.parse_args()
    console = Console(width=170)
    study = replace(STUDY, seeds=(61,), rates=(5.0,), seconds=30.0) if args.quick else STUDY
    with watching(study, console, quiet=False) as progress:
        outcome = conduct(study, RUNS, args.jobs, watch=progress)
    for failure in outcome.failures:
        console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
    grids = [shown(grid) for grid in service_grids(study, summarise(outcome))]
    for grid in grids:
        console.print(to_rich(grid))
    if not args.quick:
        write(grids)
        console.print(f"written into {PAGE.relative_to(ROOT)}")


def shown(grid: Grid) -> Grid:
    """Return the table with the columns of `SHOWN` only."""
    places = [grid.columns.index(BY_NAME[name].heading) for name in SHOWN]
    rows = [
        replace(row, entries=tuple(row.entries[place] for place in places)) for row in grid.rows
    ]
    return replace(grid, columns=tuple(grid.columns[place] for place in places), rows=tuple(rows))


def write(grids: list[Grid]) -> None:
    """Put the tables between their marks in the page."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    tables = "\n\n".join(to_markdown(grid) for grid in grids)
    PAGE.write_text(f"{head}{BEGIN}\n\n{tables}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
