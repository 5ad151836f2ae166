"""Table 1 of the Past-Future paper, with vLLM's scheduler and the admissions in use here.

    python -m benchmarks.papers.pastfuture [--quick | --full]

Gong et al., "Past-Future Scheduler for LLM Serving under SLA Guarantees" (ASPLOS 2025), section
5.3: decode steps, memory in use, memory that the batch will need, and evictions, for Llama-2-7B
with 120,000 tokens of KV cache. The table comes from a simulation of the authors
(WuSiYu/lightllm-ae, `behavior-analysis`): 3,000 requests, all of them waiting from the start,
admission after every tenth step, no drain. Here vLLM's scheduler does it, in simulated time.

That takes hours (`--full`). By default 200 requests run, and their lengths, the memory and the
interval are halved for Distribution-1 and quartered for the others; `--quick` runs 150 of
Distribution-1, quartered. As many requests run together in each. The first requests are not
counted, and steps are given as for 3,000 requests of full length.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.evidence.tables import add_option
from benchmarks.papers.pastfuture_table import (
    CODE,
    FULL,
    HALF,
    PAPER,
    PAST_FUTURE,
    QUICK,
    Figure,
    Size,
    cell_of,
    figure_of,
    table_run,
)
from benchmarks.papers.run import CACHE, Sheet, number, run_cells, show, write

TITLES = {
    "d1": "Distribution-1, decode-heavy",
    "d2": "Distribution-2, balanced",
    "d3": "Distribution-3, prefill-heavy",
}


QUARTER = Size(200, 50, 0.25)
SIZES = {"d1": HALF, "d2": QUARTER, "d3": QUARTER}

EVERY_STEP = f"{PAST_FUTURE[1]}, every step"
"""A row that the paper does not have: admission in every step, as the engine does it."""

COLUMNS = (
    "method",
    "steps, paper",
    "ours",
    "memory, paper",
    "ours",
    "future, paper",
    "ours",
    "evicted, paper",
    "ours",
)

Figures = Mapping[tuple[str, str], Figure]
"""By distribution and method."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quick", action="store_true", help="quarter lengths, Distribution-1 only")
    group.add_argument("--full", action="store_true", help="3,000 requests of full length: hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=CACHE, help="folder for the Markdown")
    add_option(parser)
    given = parser.parse_args(arguments)
    sizes = dict.fromkeys(PAPER, FULL) if given.full else SIZES
    sizes = {"d1": QUICK} if given.quick else sizes
    figures = measured(sizes, given.seed, given.jobs)
    sheets = [sheet_of(name, sizes[name], figures) for name in sizes]
    show(sheets)
    write(sheets, given.out / "pastfuture.md", given.tables)


def measured(sizes: Mapping[str, Size], seed: int, jobs: int) -> Figures:
    """Make the runs that are missing, and return the figures of those that there are."""
    rows = [(name, method) for name in sizes for method in (*PAPER[name], EVERY_STEP)]
    cells = []
    for name, method in rows:
        every = method == EVERY_STEP
        row = PAST_FUTURE[1] if every else method
        cells.append(cell_of(name, row, sizes[name], seed, every_step=every))
    made = run_cells(cells, work=table_run, code=CODE, jobs=jobs, closed=True)
    runs = {(each.cell.workload, each.cell.policy.name): each for each in made}
    found = {}
    for (name, method), cell in zip(rows, cells, strict=True):
        run = runs.get((cell.workload, cell.policy.name))
        if run is not None:
            found[name, method] = figure_of(name, run.run())
    return found


def sheet_of(name: str, size: Size, figures: Figures) -> Sheet:
    """Return the table of a distribution."""
    about = (
        f"{size.requests} requests, the first {size.skip} not counted; lengths times {size.part:g};"
        " memory and evictions in percent"
    )
    rows = []
    for method in (*PAPER[name], EVERY_STEP):
        pairs = zip(
            _texts(PAPER[name].get(method)), _texts(figures.get((name, method))), strict=True
        )
        rows.append((method, *(text for pair in pairs for text in pair)))
    return Sheet(TITLES[name], about, COLUMNS, tuple(rows))


def _texts(figure: Figure | None) -> tuple[str, ...]:
    if figure is None:
        return ("-", "-", "-", "-")
    shares = (figure.memory, figure.future, figure.evicted)
    return (number(figure.steps, 6), *(f"{share:.1f}" for share in shares))


if __name__ == "__main__":
    main()
