"""Pauses on models whose layers differ, simulated: the default beside stock vLLM with offloading.

    python -m benchmarks.layered          # what is in .cache/layered already is not run again
    python -m benchmarks.layered --only gpt-oss-120b-h100

Recorded coding agents on machines with windows and with recurrent state. Rates are fixed, so that
the figures of two versions can be compared.
"""

import argparse
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks.dominance.cases import AGENTS, DEFAULT, REPORT_SEEDS, RUNS, STOCK
from benchmarks.evidence.tables import Table, add_option, tell
from benchmarks.points import Incomplete
from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.policy import parse_policy
from caesura.simulator.study.conduct import Made, conduct
from caesura.simulator.study.figures import Figures
from caesura.simulator.study.plan import Study

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".cache" / "layered"

STATES = "nemotron-3-nano-30b-h100"


@dataclass(frozen=True, slots=True)
class Case:
    """Recorded coding agents on a machine, at rates in sessions per second.

    Their arrivals span `seconds`.
    """

    name: str
    machine: str
    seconds: float
    rates: tuple[float, ...]
    seeds: tuple[int, ...] = REPORT_SEEDS[:2]


CASES = (
    Case("gpt-oss 120B (windows)", "gpt-oss-120b-h100", 349, (0.0688, 0.103, 0.15)),
    Case("Gemma 3 27B (windows)", "gemma-3-27b-h100", 700, (0.03, 0.06)),
    Case("Nemotron 3 Nano 30B (states)", STATES, 64, (0.707,)),
    Case(
        "the same, 1/4 of the KV", f"{STATES}:kv=461000", 114, (0.211, 0.317, 0.5), REPORT_SEEDS[:1]
    ),
    Case("Qwen3-Next 80B (states)", "qwen3-next-80b-h100-tp2", 80, (0.4, 0.7)),
)
POLICIES = (DEFAULT, STOCK)

HEADS = (
    "mean latency [s]",
    "of offloading, by seed",
    "p99 [s]",
    "mean TTFT [s]",
    "recomputed [%]",
)


def study_of(case: Case) -> Study:
    """Return the study of a case; both policies see the same sessions."""
    policies = tuple(parse_policy(name) for name in POLICIES)
    return Study(AGENTS, policies, case.rates, case.seeds, (case.machine,), case.seconds, data=RUNS)


def rows(case: Case, made: Iterable[Made]) -> list[tuple[str, ...]]:
    """Return a row for each rate: means over the seeds, the default's first."""
    found = {(one.cell.rate, one.cell.policy.name, one.cell.seed): one.figures for one in made}
    lines: list[tuple[str, ...]] = []
    for rate in case.rates:
        ours, stock = ([found[rate, name, seed] for seed in case.seeds] for name in POLICIES)
        ratios = ", ".join(
            f"{one.latency_mean / other.latency_mean:.2f}"
            for one, other in zip(ours, stock, strict=True)
        )
        cells = (
            _both(ours, stock, "latency_mean"),
            ratios,
            _both(ours, stock, "latency_p99"),
            _both(ours, stock, "ttft_mean"),
            " / ".join(
                f"{100 * fmean(x.recompute_share for x in some):.1f}" for some in (ours, stock)
            ),
        )
        lines.append((case.name, f"{rate:.3g}", *cells))
    return lines


def _both(ours: Sequence[Figures], stock: Sequence[Figures], name: str) -> str:
    return " / ".join(f"{fmean(getattr(one, name) for one in some):.3g}" for some in (ours, stock))


def table(lines: Iterable[Sequence[str]]) -> Table:
    """Return the whole table."""
    return Table.of(("machine", "sessions/s", *HEADS), lines)


def run(cases: Iterable[Case], runs: Path, jobs: int) -> Iterator[list[tuple[str, ...]]]:
    """Simulate the cases, and yield the rows of each; raise `Incomplete` if a run failed."""
    console = Console(width=170)
    for case in cases:
        study = study_of(case)
        with watching(study, console, quiet=False) as progress:
            outcome = conduct(study, runs, jobs, watch=progress)
        for failure in outcome.failures:
            console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
        if outcome.failures:
            raise Incomplete(f"{len(outcome.failures)} runs of {case.name} failed")
        yield rows(case, outcome.made)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="one machine")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--runs", type=Path, default=KEPT, help="folder of the kept runs")
    add_option(parser)
    args = parser.parse_args()
    cases = [case for case in CASES if args.only in (None, case.machine)]
    found = table(line for lines in run(cases, args.runs, args.jobs) for line in lines)
    print(found.markdown())
    tell(args.tables, [found])


if __name__ == "__main__":
    main()
