"""Is the default ever the worse choice? Over all cases and loads, simulated.

python -m benchmarks.dominance           # what is in .cache/dominance already is not run again
python -m benchmarks.dominance --choose  # the seeds on which parameters may be chosen
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.evidence.tables import add_option, tell
from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.conduct import Made, conduct
from caesura.simulator.study.plan import Study

from .capacity import capacity
from .cases import CASES, CHOICE_SEEDS, DEFAULT, LOADS, OTHERS, REPORT_SEEDS, Case
from .judge import Runs, Verdict, verdicts
from .show import chart, counts, table

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".cache" / "dominance"


def study_of(case: Case, rates: list[float], seconds: float, seeds: tuple[int, ...]) -> Study:
    """Return the study of a case; all policies see the same sessions."""
    policies = tuple(
        replace(parse_policy(name), names_parents=case.names_parents) for name in (DEFAULT, *OTHERS)
    )
    machines = (case.machine,)
    return Study(case.workload, policies, tuple(rates), seeds, machines, seconds, data=case.data)


def by_policy(made: list[Made]) -> Runs:
    """Return the runs of one load by the policy's name."""
    found: dict[str, list[Made]] = {}
    for each in made:
        found.setdefault(each.cell.policy.name, []).append(each)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--choose", action="store_true", help=f"seeds {CHOICE_SEEDS}")
    parser.add_argument("--seeds", type=int, default=1, help="the number of seeds")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of capacity")
    parser.add_argument("--only", help="the name of one case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw mean and p99 as PNG")
    parser.add_argument("--runs", type=Path, default=KEPT, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    console = Console(width=170)
    seeds = (CHOICE_SEEDS if args.choose else REPORT_SEEDS)[: args.seeds]
    capacities: dict[str, float] = {}
    runs: dict[tuple[str, float], Runs] = {}
    found: list[Verdict] = []
    failed = 0
    for case in CASES:
        if args.only and args.only != case.name:
            continue
        limit = capacities[case.name] = capacity(case, args.runs, args.jobs)
        console.print(f"{case.name}: {limit:.3g} sessions/s at most")
        study = study_of(case, [load * limit for load in args.loads], case.sessions / limit, seeds)
        with watching(study, console, quiet=False) as progress:
            outcome = conduct(study, args.runs, args.jobs, watch=progress)
        failed += len(outcome.failures)
        for failure in outcome.failures:
            console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
        for load, rate in zip(args.loads, study.rates, strict=True):
            made = [each for each in outcome.made if each.cell.rate == rate]
            runs[case.name, load] = by_policy(made)
            if all(len(runs[case.name, load].get(name, ())) for name in study.policy_names):
                found += verdicts(case.name, load, runs[case.name, load])
    tables = [counts(found), table(found, capacities)]
    for each in tables:
        console.print(each.markdown(), markup=False)
    if args.chart is not None:
        args.chart.write_bytes(chart(runs, args.loads))
    if not failed:
        tell(args.tables, tables)


if __name__ == "__main__":
    main()
