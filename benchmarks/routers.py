"""One queue, affinity and the least loaded: routers in front of many replicas, simulated.

    python -m benchmarks.routers      # what is in .cache/routers already is not run again

The plot shows the mean time to the first token against how unevenly the requests are spread, with
the share of tokens that were computed again beside each router's name.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.charts import panels, to_png
from benchmarks.evidence.tables import add_option, tell
from benchmarks.points import points_of, table_of
from caesura.planning.show.gantt import PALETTE
from caesura.simulator.policy import EPOCH_SECONDS, Fleet, parse_policy
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "routers"
ROUTERS = ("one-queue", "affinity", "least")
SEEDS = (1, 2, 3)
RATE_PER_REPLICA = 4.0
SHOWN = (
    "latency_mean",
    "latency_p99",
    "ttft_mean",
    "load_variation",
    "busy_imbalance",
    "recompute_share",
)


def study_of(replicas: int, seconds: float) -> Study:
    """Return the study: the same sessions behind each router."""
    default = parse_policy("caesura")
    policies = tuple(
        replace(default, name=router, fleet=Fleet(replicas, router, EPOCH_SECONDS))
        for router in ROUTERS
    )
    rates = (RATE_PER_REPLICA * replicas,)
    machine = "gptj-6b-a100-40g"
    return Study(
        "mix:tools=qa+math", policies, rates, SEEDS, (machine,), seconds, warm_up=seconds / 10
    )


def draw(points: Sequence[Point]) -> bytes:
    """Return the plot as PNG."""
    figure, (axis,) = panels(1, 3.6)
    for number, point in enumerate(points):
        means = point.means
        again = 100 * means["recompute_share"].mean
        axis.errorbar(
            means["load_variation"].mean,
            means["ttft_mean"].mean,
            xerr=means["load_variation"].half,
            yerr=means["ttft_mean"].half,
            fmt="o",
            color=PALETTE[number % len(PALETTE)],
            label=f"{point.name} ({again:.0f} % again)",
        )
    axis.set(xlabel="variation of requests over replicas", ylabel="mean TTFT [s]")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="x-small")
    return to_png(figure)


def main() -> None:
    """Print the table, and draw the plot if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--replicas", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0, help="of arrivals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the routers as PNG")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    study = study_of(args.replicas, args.seconds)
    points = points_of(study, args.runs, args.jobs, Console())
    if args.chart is not None:
        args.chart.write_bytes(draw(points))
    table = table_of(points, SHOWN)
    print(table.markdown())
    tell(args.tables, [table])


if __name__ == "__main__":
    main()
