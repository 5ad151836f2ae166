"""The default policy against the others: docs/study/policies.md by simulation.

    python -m benchmarks.policies            # what is in .cache/policies already is not run again
    python -m benchmarks.policies --quick    # one seed and short traces: to see that it works

The seeds were not used while the policy was made.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from benchmarks.charts import curves
from caesura.runtime.cli.plan.studies import watching
from caesura.simulator.policy import Policy, parse_policy
from caesura.simulator.study.conduct import conduct
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point, summarise
from caesura.simulator.study.tables import (
    Grid,
    memory_grids,
    ratio_grids,
    service_grids,
    to_markdown,
    to_rich,
)

ROOT = Path(__file__).parents[1]
RUNS = ROOT / ".cache" / "policies"
PAGE = ROOT / "docs" / "study" / "policies.md"
IMAGE = ROOT / "docs" / "images" / "policies-rates.png"
SEEDS = (41, 42, 43)
MACHINE = "gptj-6b-a100-40g"
PUBLISHED = ("infercept-strict", "lamps-paper", "lamps")
MEMORY_TIME = "caesura:ranking=caesura:beta=100;most_delay=1000000"
"""What the others are compared with: it was the default when the tables were made."""
STRONG = ("infercept", "lamps-infercept", MEMORY_TIME)
"""Baselines in their strongest form: back-filled, with our chunk budget."""


@dataclass(frozen=True)
class Part:
    """One study and where it goes in the page, under which words; `chart`: with its chart."""

    name: str
    study: Study
    label: str = ""
    chart: bool = False
    memory: bool = False


def policies(*names: str) -> tuple[Policy, ...]:
    return tuple(parse_policy(name) for name in names)


def _study(
    names: tuple[str, ...],
    rates: tuple[float, ...],
    seeds: tuple[int, ...] = SEEDS[:1],
    seconds: float = 400,
    workload: str = "mix",
    machine: str = MACHINE,
) -> Study:
    return Study(
        workload, policies(*names), rates, seeds, (machine,), seconds, baseline=MEMORY_TIME
    )


def parts() -> Iterator[Part]:
    stock = ("stock", "stock-offload", "stock-offload-ordered")
    yield Part("stock", _study((*stock, MEMORY_TIME), (1.0, 2.0), SEEDS[:2], 300))
    names = ("infercept", "lamps-infercept", "ssjf", "fcfs", MEMORY_TIME, "free-offload")
    mix = _study(names, (2.0, 2.5, 2.75), SEEDS, 400)
    yield Part("mix", mix, chart=True, memory=True)
    yield Part("published", _study((*PUBLISHED, *STRONG), (2.5,)))
    for tool, rate in TOOLS.items():
        study = _study(STRONG, (rate,), seconds=300, workload=f"mix:tool={tool}")
        yield Part("tools", study, tool)
    for link in (1, 2, 5, 10, 40):
        study = _study(STRONG, (2.0,), machine=f"{MACHINE}:link={link}")
        yield Part("links", study, f"{link} GB/s")
    wrong = [
        f"{name}prediction=oracle:error={error}"
        for name in (f"{MEMORY_TIME},", "lamps-infercept:")
        for error in (0, 0.5, 1, 2)
    ]
    known = (f"{MEMORY_TIME},prediction=oracle:knows=calls", MEMORY_TIME)
    yield Part("errors", _study((*wrong, *known), (2.5,)))


TOOLS = {"math": 4.0, "qa": 4.0, "ve": 1.4, "chatbot": 2.5, "image": 2.5, "tts": 2.5}
"""Sessions per second of each tool alone: close to what the engine can take of it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, 60 s of arrivals")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--only", help="one part: stock, mix, published, tools, links or errors")
    args = parser.parse_args()
    console = Console(width=170)
    made: dict[str, list[str]] = {}
    for part in parts():
        if args.only and part.name != args.only:
            continue
        study = part.study
        if args.quick:
            study = replace(study, seeds=study.seeds[:1], seconds=60)
        made.setdefault(part.name, []).extend(_make(part, study, args.jobs, console, args.quick))
    if not args.quick:
        _write(made)
        console.print(f"written into {PAGE.relative_to(ROOT)}")


def _make(part: Part, study: Study, jobs: int, console: Console, quick: bool) -> list[str]:
    """Run one study, print its tables, and return them as Markdown."""
    with watching(study, console, quiet=False) as progress:
        outcome = conduct(study, RUNS, jobs, watch=progress)
    for failure in outcome.failures:
        console.print(f"[red]failed:[/red] {failure.cell}: {failure.reason}")
    points = summarise(outcome)
    grids = _grids(part, study, points)
    for grid in grids:
        console.print(to_rich(grid))
    if part.chart and not quick:
        IMAGE.write_bytes(curves(study, points))
    label = [f"**{part.label}**"] if part.label else []
    return label + [to_markdown(grid) for grid in grids]


def _grids(part: Part, study: Study, points: list[Point]) -> list[Grid]:
    grids = service_grids(study, points)
    if len(study.seeds) > 1:
        grids += ratio_grids(study, points)
    if part.memory:
        grids += memory_grids(study, points)
    return grids


def _write(made: dict[str, list[str]]) -> None:
    """Put the tables between their marks in the page."""
    text = PAGE.read_text()
    for name, tables in made.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n\n" + "\n\n".join(tables) + f"\n\n{end}{tail}"
    PAGE.write_text(text)


if __name__ == "__main__":
    main()
