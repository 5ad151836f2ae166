"""Goodput over load: sessions within an objective, by policy, simulated.

    python -m benchmarks.goodput            # what is in .cache/goodput already is not run again
    python -m benchmarks.goodput --quick    # one seed and short traces: to see that it works

The order within a class was chosen with seed 0, which the reported seeds do not contain.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.evidence.tables import add_option, tell
from benchmarks.points import points_of, table_of
from caesura.scheduler.policy.slo import Slo
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.plan import Study

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "goodput"

SLO = Slo(2.0, 0.1)
AIMED = str(SLO).replace(",", ";")
POLICIES = (
    "stock-offload",
    "lamps-infercept",
    "caesura",
    f"caesura:slo={AIMED}",
    f"caesura:slo={AIMED},ranking=caesura",
)
SHOWN = ("goodput_sessions", "goodput_share", "latency_mean", "latency_p99")

STUDY = Study(
    workload="mix:tool=qa",
    policies=tuple(parse_policy(name) for name in POLICIES),
    rates=(3.0, 5.0),
    seeds=(61, 62, 63),
    machines=("gptj-6b-a100-40g",),
    seconds=100.0,
    slo=SLO,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, one rate, 30 s of arrivals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    study = replace(STUDY, seeds=(61,), rates=(5.0,), seconds=30.0) if args.quick else STUDY
    table = table_of(points_of(study, args.runs, args.jobs, Console()), SHOWN)
    print(table.markdown())
    tell(args.tables, [table])


if __name__ == "__main__":
    main()
