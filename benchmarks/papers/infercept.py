"""InferCept's Fig. 2 and 4 and its waste shares, on the scheduler that serves, in simulated time.

    python -m benchmarks.papers.infercept [--quick] [--13b]

Abhyankar et al., "InferCept: Efficient Intercept Support for Augmented Large Language Model
Inference" (ICML 2024). Fig. 2: normalized latency (median of latency less tools' time, per decoded
token) against the request rate. Fig. 4: its techniques added one at a time at 2 requests/s; each
change is relative to the step before, so that all of them multiply to 5.7, the largest gain that
the text gives for Fig. 2. The paper's curves are pictures: what is compared are the numbers in its
text.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from benchmarks.papers import infercept_handlings
from benchmarks.papers.infercept_systems import (
    DISCARD,
    EQUAL_RATE,
    IMPROVED,
    INFERCEPT,
    LARGE,
    PAPER_RATE,
    PRESERVE,
    SMALL,
    STEPS,
    SWAP,
    curve_cells,
    step_cells,
    waste_cells,
)
from benchmarks.papers.infercept_waste import waste_rows, whole_waste
from benchmarks.papers.run import (
    Measured,
    Row,
    Sheet,
    beside_the_paper,
    crossing,
    mean_by,
    number,
    options,
    run_cells,
    settled,
    show,
    write,
)
from caesura.simulator.study.plan import Cell

SECONDS = 900.0
SEEDS = (31, 32, 33)

LEVEL = 0.05
"""Seconds per token at which sustained rates are compared: InferCept starts from 0.015 here."""

LEVELS = (0.03, LEVEL, 0.08)

CLAIMS = {
    SMALL: (1.6, "1.9 to 5.7"),
    "vicuna-13b-a100-40g": (1.25, None),
    "vicuna-13b-a100-40g-tp2": (1.8, "1.6 to 10"),
}
"""Up to how many times vLLM's rate at equal normalized latency, and how much lower that is at the
same rate (section 5.1)."""

Curves = Mapping[str, Mapping[float, float]]


def normalized(run: Measured) -> float:
    return run.figures.normalized_latency


def curves_of(runs: Sequence[Measured]) -> Curves:
    """Return each system's normalized latency by rate, in the order of the runs."""
    values = mean_by(runs, lambda cell: (cell.policy.name, cell.rate), normalized)
    curves: dict[str, dict[float, float]] = {}
    for (name, rate), value in values.items():  # type: ignore[misc]
        curves.setdefault(name, {})[rate] = value
    return curves


def about(cells: Sequence[Cell]) -> str:
    """Say how long the traces are and which seeds they have."""
    spans = sorted({cell.seconds for cell in cells})
    seeds = sorted({cell.seed for cell in cells})
    said = " or ".join(f"{span:g}" for span in spans)
    return f"arrivals over {said} s, {plural(seeds)} {', '.join(map(str, seeds))}"


def plural(seeds: Sequence[int]) -> str:
    return "seeds" if len(seeds) > 1 else "seed"


def curve_sheet(machine: str, curves: Curves, said: str) -> Sheet:
    """Return the curves as a table."""
    rates = sorted({rate for curve in curves.values() for rate in curve})
    rows = tuple(
        (name, *(number(curve.get(rate), 2) for rate in rates)) for name, curve in curves.items()
    )
    title = f"InferCept, Fig. 2: normalized latency in s/token against requests/s, {machine}"
    return Sheet(title, said, ("system", *(f"{rate:g}" for rate in rates)), rows)


def sustained(curves: Curves, level: float = LEVEL) -> dict[str, float]:
    """Return each system's rate at a level, for those that reach it."""
    found = {name: crossing(curve, level) for name, curve in curves.items()}
    return {name: rate for name, rate in found.items() if rate is not None}


def gains(curves: Curves) -> list[float]:
    """Return vLLM's over InferCept's normalized latency, at each rate at which both ran."""
    base, ours = curves[DISCARD.name], curves[INFERCEPT.name]
    return [base[rate] / ours[rate] for rate in sorted(base) if rate in ours]


def claim_rows(machine: str, curves: Curves) -> list[Row]:
    """Return what the text says of Fig. 2."""
    most, lower = CLAIMS[machine]
    rows = []
    for level in LEVELS:
        rates = sustained(curves, level)
        both = DISCARD.name in rates and INFERCEPT.name in rates
        ours = rates[INFERCEPT.name] / rates[DISCARD.name] if both else None
        rows.append(Row(f"times vLLM's rate at {level:g} s/token", most, ours))
    ratios = gains(curves)
    span = f"{min(ratios):.1f} to {max(ratios):.1f}" if ratios else None
    rows.append(Row("times lower normalized latency at the same rate", lower, span))
    if machine != SMALL:
        return rows
    rates = sustained(curves)
    order = sorted((IMPROVED.name, PRESERVE.name, SWAP.name), key=lambda name: -rates.get(name, 0))
    said = ", ".join(f"{name} {number(rates.get(name), 2)}" for name in order)
    paper = "Preserve best, Swap near ImprovedDiscard"
    rows.append(Row(f"baselines by their rate at {LEVEL:g} s/token", paper, said))
    return rows


def step_sheet(runs: Sequence[Measured], rate: float, said: str) -> Sheet:
    """Return Fig. 4 at a rate: each step's change against the one before, in percent."""
    chosen = [run for run in runs if run.cell.rate == rate]
    latency = mean_by(chosen, lambda cell: cell.policy.name, normalized)
    waste = mean_by(chosen, lambda cell: cell.policy.name, whole_waste)
    rows, before = [], None
    for policy, paper in STEPS:
        value = latency.get(policy.name)
        change = None if value is None or before is None else 100 * (value / before - 1)
        share = waste.get(policy.name)
        cells = (
            policy.name,
            "-" if paper is None else f"{paper:+.1f} %",
            "-" if change is None else f"{change:+.1f} %",
            number(value),
            "-" if share is None else f"{100 * share:.2f} %",
        )
        rows.append(cells)
        before = value
    columns = ("step", "paper's", "ours", "s/token", "waste")
    return Sheet(
        f"InferCept, Fig. 4: step by step at {rate:g} requests/s", said, columns, tuple(rows)
    )


def sheets_of(
    runs: Sequence[Measured],
    curves: Mapping[str, Sequence[Cell]],
    steps: Sequence[Cell],
    waste: Sequence[Cell],
) -> Iterator[Sheet]:
    """Yield all tables, from the runs of the cells of each figure."""

    def of(cells: Sequence[Cell]) -> list[Measured]:
        return [run for run in runs if run.cell in cells]

    for machine, cells in curves.items():
        found = curves_of(of(cells))
        yield curve_sheet(machine, found, about(cells))
        rows = claim_rows(machine, found)
        yield beside_the_paper(f"InferCept, section 5.1: {machine}", about(cells), rows)
    for rate in (EQUAL_RATE, PAPER_RATE):
        yield step_sheet(of(steps), rate, about(steps))
    for rate in (EQUAL_RATE, PAPER_RATE):
        title = f"InferCept, sections 3.2 and 5: waste in percent at {rate:g} requests/s"
        said = f"{about(waste)}, cut off when arrivals end"
        yield beside_the_paper(title, said, waste_rows(of(waste), rate))


def main() -> None:
    """Run what is missing, print the tables and write them to `infercept.md`."""
    parser = options(__doc__ or "", seconds=SECONDS, seeds=SEEDS)
    parser.add_argument("--13b", dest="large", action="store_true", help="Vicuna-13B too")
    args = parser.parse_args()
    seconds, seeds = settled(args)
    machines = (SMALL, *LARGE) if args.large else (SMALL,)
    curves = {machine: curve_cells(seconds, seeds, machine, args.quick) for machine in machines}
    steps, waste = step_cells(seconds, seeds), waste_cells(seconds, seeds)
    runs = run_cells(
        [*chain.from_iterable(curves.values()), *steps, *waste],
        work=infercept_handlings.simulate_step,
        code=[Path(infercept_handlings.__file__)],
        jobs=args.jobs,
    )
    sheets = list(sheets_of(runs, curves, steps, waste))
    show(sheets)
    write(sheets, args.out / "infercept.md", args.tables)


if __name__ == "__main__":
    main()
