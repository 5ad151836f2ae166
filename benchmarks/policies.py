"""The default policy against the others, simulated, and what becomes of it on slow links.

    python -m benchmarks.policies            # what is in .cache/policies already is not run again
    python -m benchmarks.policies links
    python -m benchmarks.policies --quick    # one seed and short traces: to see that it works

The seeds were not used while the policy was made.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.charts import curves
from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.points import label, points_of, table_of
from caesura.simulator.policy import Policy, parse_policy
from caesura.simulator.study.plan import Study
from caesura.simulator.study.tables import BY_NAME, estimated

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "policies"
SEEDS = (41, 42, 43)
MACHINE = "gptj-6b-a100-40g"
DEFAULT = "caesura"
STOCK = ("stock", "stock-offload")
STRONG = ("infercept", "lamps-infercept")
"""Baselines in their strongest form: back-filled, with our chunk budget."""
SECONDS = 120.0
RATES = (1.0, 2.0, 2.75)
LINKS = (1, 2, 5, 10)
"""Rates of the link to the host in GB/s, both directions together."""
SHOWN = ("latency_mean", "latency_p99", "ttft_mean", "recompute_share")


def policies(*names: str) -> tuple[Policy, ...]:
    return tuple(parse_policy(name) for name in names)


def rates() -> Study:
    """Return the study of all policies at rates below capacity, near it, and past it."""
    names = (*STOCK, *STRONG, DEFAULT)
    return Study("mix", policies(*names), RATES, SEEDS, (MACHINE,), SECONDS)


def links() -> Study:
    """Return the study of the default and the baselines on slow and fast links."""
    machines = tuple(f"{MACHINE}:link={link}" for link in LINKS)
    return Study("mix", policies(*STRONG, DEFAULT), (2.0,), SEEDS, machines, SECONDS)


def rates_table(study: Study, jobs: int, console: Console, chart: Path | None) -> Table:
    points = points_of(study, RUNS, jobs, console)
    if chart is not None:
        chart.write_bytes(curves(study, points))
    return table_of(points, SHOWN)


def links_table(study: Study, jobs: int, console: Console) -> Table:
    """Return the mean latency and its p99, with a column for each policy."""
    points = points_of(study, RUNS, jobs, console)
    rows = []
    for machine in study.machines:
        here = [point for point in points if point.machine == machine]
        cells = (
            estimated(point.means[name])
            for name in ("latency_mean", "latency_p99")
            for point in here
        )
        rows.append((machine.partition("link=")[2], *cells))
    heads = [
        f"{BY_NAME[name].heading}, {label(point)}"
        for name in ("latency_mean", "latency_p99")
        for point in points[: len(study.policies)]
    ]
    return Table.of(("link [GB/s]", *heads), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="?", choices=("rates", "links"), default="rates")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 s of arrivals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the rates as PNG")
    add_option(parser)
    args = parser.parse_args()
    console = Console()
    study = rates() if args.part == "rates" else links()
    if args.quick:
        study = replace(study, seeds=study.seeds[:1], seconds=20.0)
    if args.part == "rates":
        table = rates_table(study, args.jobs, console, args.chart)
    else:
        table = links_table(study, args.jobs, console)
    print(table.markdown())
    tell(args.tables, [table])


if __name__ == "__main__":
    main()
