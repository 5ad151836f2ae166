"""The default policy against the others, simulated, and what becomes of it on slow links.

    python -m benchmarks.policies            # what is in .cache/policies already is not run again
    python -m benchmarks.policies links
    python -m benchmarks.policies competition
    python -m benchmarks.policies --quick    # one seed and short traces: to see that it works

The seeds were not used while the policy was made.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.charts import curves
from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.points import label, points_of, table_of
from caesura.simulator.policy import Policy, parse_policy
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point
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
COMPETING = (5, 25)
"""Rates of the link where copies slow the steps."""
COMPETING_RATES = (0.3, 1.0, 2.0, 2.75)
OF_SESSIONS = ("latency_mean", "latency_p99")
SHOWN = (*OF_SESSIONS, "ttft_mean", "recompute_share")


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


def competition() -> Study:
    """Return the study of a machine on which a step runs at half its speed beside a copy."""
    names = (DEFAULT, *STRONG, f"{DEFAULT}:handling=preserve")
    machines = tuple(f"{MACHINE}:interference=1,link={link}" for link in COMPETING)
    study = Study("mix", policies(*names), COMPETING_RATES, SEEDS, machines, SECONDS)
    return replace(study, baseline=DEFAULT)


def rates_table(points: Sequence[Point]) -> Table:
    """Return a row for each rate and policy."""
    return table_of(points, SHOWN)


def links_table(points: Sequence[Point]) -> Table:
    """Return the mean latency and its p99: a row for each link, a column for each policy."""
    names = list(dict.fromkeys(label(point) for point in points))
    rows = []
    for machine in dict.fromkeys(point.machine for point in points):
        here = [point for point in points if point.machine == machine]
        cells = (estimated(point.means[name]) for name in OF_SESSIONS for point in here)
        rows.append((machine.partition("link=")[2], *cells))
    heads = [f"{BY_NAME[measure].heading}, {name}" for measure in OF_SESSIONS for name in names]
    return Table.of(("link [GB/s]", *heads), rows)


def competition_table(points: Sequence[Point]) -> Table:
    """Return the mean latency and its p99, with a row for each link, rate and policy."""
    rows = [
        (
            point.machine.partition("link=")[2],
            f"{point.rate:g}",
            label(point),
            *(estimated(point.means[name]) for name in OF_SESSIONS),
            *(estimated(point.ratios[name]) for name in OF_SESSIONS),
        )
        for point in points
    ]
    heads = ("mean latency [s]", "p99 [s]", "mean to the default's", "p99 to the default's")
    return Table.of(("link [GB/s]", "sessions/s", "policy", *heads), rows)


PARTS: dict[str, tuple[Study, Callable[[Sequence[Point]], Table]]] = {
    "rates": (rates(), rates_table),
    "links": (links(), links_table),
    "competition": (competition(), competition_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", nargs="?", choices=tuple(PARTS), default="rates")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 s of arrivals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the rates as PNG")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    console = Console()
    study, table_of_part = PARTS[args.part]
    if args.quick:
        study = replace(study, seeds=study.seeds[:1], seconds=20.0)
    points = points_of(study, args.runs, args.jobs, console)
    if args.part == "rates" and args.chart is not None:
        args.chart.write_bytes(curves(study, points))
    table = table_of_part(points)
    print(table.markdown())
    tell(args.tables, [table])


if __name__ == "__main__":
    main()
