"""Simulate the default and the others over all cases and loads, for docs/study/policies.md.

python -m benchmarks.dominance           # what is in .cache/dominance already is not run again
python -m benchmarks.dominance --choose  # the seeds on which parameters may be chosen
"""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.conduct import Made, conduct
from caesura.simulator.study.plan import Study

from .capacity import capacity
from .cases import CASES, CHOICE_SEEDS, DEFAULT, LOADS, OTHERS, REPORT_SEEDS, Case
from .judge import Runs, Verdict, verdicts
from .show import chart, table

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".cache" / "dominance"
PAGE = ROOT / "docs" / "study" / "policies.md"
IMAGE = ROOT / "docs" / "images" / "policies-dominance.png"
BEGIN, END = "<!-- begin dominance -->", "<!-- end dominance -->"


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
    parser.add_argument("--choose", action="store_true", help=f"seeds {CHOICE_SEEDS}, no page")
    parser.add_argument("--seeds", type=int, default=3, help="the number of seeds")
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of capacity")
    parser.add_argument("--only", help="the name of one case")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    args = parser.parse_args()
    console = Console(width=170)
    seeds = (CHOICE_SEEDS if args.choose else REPORT_SEEDS)[: args.seeds]
    capacities: dict[str, float] = {}
    runs: dict[tuple[str, float], Runs] = {}
    found: list[Verdict] = []
    for case in CASES:
        if args.only and args.only != case.name:
            continue
        limit = capacities[case.name] = capacity(case, KEPT, args.jobs)
        console.print(f"{case.name}: {limit:.3g} sessions/s at most")
        study = study_of(case, [load * limit for load in args.loads], case.sessions / limit, seeds)
        with watching(study, console, quiet=False) as progress:
            outcome = conduct(study, KEPT, args.jobs, watch=progress)
        for failure in outcome.failures:
            console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
        for load, rate in zip(args.loads, study.rates, strict=True):
            made = [each for each in outcome.made if each.cell.rate == rate]
            runs[case.name, load] = by_policy(made)
            if all(len(runs[case.name, load].get(name, ())) for name in study.policy_names):
                found += verdicts(case.name, load, runs[case.name, load])
    text = table(found, capacities)
    console.print(text, markup=False)
    if not (args.choose or args.only):
        _write(text)
        IMAGE.write_bytes(chart(runs, args.loads))


def _write(text: str) -> None:
    """Put the table between its marks in the page."""
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
