"""Pauses on models whose layers differ, simulated: ours, and stock vLLM with its own offloading.

    python -m benchmarks.layered          # what is in .cache/layered already is not run again
    python -m benchmarks.layered --only "agents, windows" --loads 1.0

It fills the table of docs/policies.md: recorded coding agents and the six-tool mix on two machines,
one with windows and one with recurrent state, at shares of what a closed loop completes.
"""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.dominance.capacity import capacity
from benchmarks.dominance.cases import AGENTS, LOOP, REPORT_SEEDS, STOCK, Case
from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.conduct import Made, conduct
from caesura.simulator.study.plan import Study

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".cache" / "layered"
PAGE = ROOT / "docs" / "policies.md"
BEGIN, END = "<!-- begin layered -->", "<!-- end layered -->"

WINDOWS, STATES = "gpt-oss-120b-h100", "nemotron-3-nano-30b-h100"

CASES = (
    Case("agents, windows", AGENTS, LOOP, 8, 24, WINDOWS, True),
    Case("agents, states", AGENTS, LOOP, 20, 30, STATES, True),
    Case("agents, states, 1/4 of the KV", AGENTS, LOOP, 8, 24, f"{STATES}:kv=461000", True),
    Case("six tools, windows", "mix", "mix:longest=2", 48, 100, WINDOWS),
    Case("six tools, states", "mix", "mix:longest=2", 48, 100, STATES),
)
POLICIES = ("fcfs", "fcfs:handling=discard", "infercept", "stock", STOCK)
"""The default; what it does to states with speculative decoding; InferCept; stock vLLM."""

LOADS = (0.5, 1.0, 1.5)
HEADS = ("mean latency [s]", "p99 [s]", "mean TTFT [s]", "recomputed [%]", "mean, of offloading")


def study_of(case: Case, rates: Sequence[float], seconds: float) -> Study:
    """Return the study of a case, with one seed; all policies see the same sessions."""
    policies = tuple(parse_policy(name) for name in POLICIES)
    seeds, machines = REPORT_SEEDS[:1], (case.machine,)
    return Study(case.workload, policies, tuple(rates), seeds, machines, seconds, data=case.data)


def rows(
    case: Case, loads: Sequence[float], rates: Sequence[float], made: Iterable[Made]
) -> list[str]:
    """Return a row for each load and policy, as Markdown."""
    found = {(each.cell.rate, each.cell.policy.name): each.figures for each in made}
    lines = []
    for load, rate in zip(loads, rates, strict=True):
        least = min((found[rate, name].latency_mean for name in POLICIES), default=0.0)
        stock = found[rate, STOCK].latency_mean
        for name in POLICIES:
            one = found[rate, name]
            mean = f"{one.latency_mean:.3g}"
            mean = f"**{mean}**" if one.latency_mean == least else mean
            lines.append(
                f"| {case.name} | {load:.0%} | {rate:.3g} | `{name}` | {mean}"
                f" | {one.latency_p99:.3g} | {one.ttft_mean:.3g} | {one.recompute_share:.1%}"
                f" | {one.latency_mean / stock:.2f} |"
            )
    return lines


def table(lines: Iterable[str]) -> str:
    """Return the whole table."""
    head = "| workload | load | sessions/s | policy | " + " | ".join(HEADS) + " |"
    return "\n".join([head, "| --- | ---: | ---: | --- |" + " ---: |" * len(HEADS), *lines])


def run(cases: Iterable[Case], loads: Sequence[float], jobs: int) -> Iterator[list[str]]:
    """Simulate the cases, and yield the rows of each."""
    console = Console(width=170)
    for case in cases:
        limit = capacity(case, KEPT, jobs)
        console.print(f"{case.name}: {limit:.3g} sessions/s at most")
        rates = [load * limit for load in loads]
        study = study_of(case, rates, case.sessions / limit)
        with watching(study, console, quiet=False) as progress:
            outcome = conduct(study, KEPT, jobs, watch=progress)
        for failure in outcome.failures:
            console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
        if not outcome.failures:
            yield rows(case, loads, study.rates, outcome.made)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loads", type=float, nargs="+", default=LOADS, help="shares of capacity")
    parser.add_argument("--only", help="the name of one case; writes no page")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    args = parser.parse_args()
    cases = [case for case in CASES if args.only in (None, case.name)]
    text = table(line for lines in run(cases, args.loads, args.jobs) for line in lines)
    print(text)
    if args.only is None:
        head, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
