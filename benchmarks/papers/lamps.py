"""LAMPS (arXiv 2410.18248), its figures 6 to 11 by simulation with the scheduler that serves.

    python -m benchmarks.papers.lamps [--quick] [--figure 6] [--seconds 300] [--seeds 1 2 3]

The paper's machine has A100 cards held to 40 GB; the simulated ones are `gptj-6b-a100-40g` and
`vicuna-13b-a100-40g-tp2` (PCIe 4, 20 GB/s). Sessions are drawn from the paper's Table 2; what they
decode is not in it, so that its rates and ours load a machine differently. All sessions that arrive
are waited for, in the paper as many as end within 30 minutes. `--quick` leaves out rates and makes
one run of each.
"""

from collections.abc import Sequence

from rich.console import Console

from benchmarks.papers import lamps_example
from benchmarks.papers.lamps_findings import rows
from benchmarks.papers.lamps_plan import FIGURES, Chain, Figure
from benchmarks.papers.lamps_run import Found, cells
from benchmarks.papers.lamps_show import added, measures
from benchmarks.papers.run import Sheet, beside_the_paper, options, run_cells, settled, show, write

SECONDS = 900.0
SEEDS = (1, 2, 3)


def sheets(figure: Figure, found: Found, quick: bool, about: str) -> list[Sheet]:
    """Return a figure's tables: what was run, what it is against the paper, and what adds what."""
    title = f"Figure {figure.number} beside the paper"
    tables = [
        measures(figure, found, quick, about),
        beside_the_paper(title, f"The paper: {figure.says}", rows(figure.number, found)),
    ]
    return tables + [added(chain, found) for chain in figure.chains if complete(chain, found)]


def complete(chain: Chain, found: Found) -> bool:
    """Return whether all systems of a chain have run."""
    setup, steps = chain
    return all(found.has(setup, system) for system, _ in steps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing and print all tables."""
    parser = options(__doc__ or "", seconds=SECONDS, seeds=SEEDS)
    parser.add_argument("--figure", type=int, nargs="+", choices=FIGURES, help="default: all")
    args = parser.parse_args(arguments)
    seconds, seeds = settled(args)
    chosen = [FIGURES[number] for number in args.figure or FIGURES]
    wanted = [each for figure in chosen for each in figure.wanted(args.quick)]
    console = Console(stderr=True)
    made = run_cells(cells(wanted, seconds, seeds), jobs=args.jobs, console=console)
    found = Found(made)
    about = f"Arrivals for {seconds:g} s, the first sixth not counted; {len(seeds)} seed(s)."
    tables = [each for figure in chosen for each in sheets(figure, found, args.quick, about)]
    if not args.figure:
        print("The worked example (Table 1, Fig. 3):")
        print(lamps_example.table().markdown())
    show(tables)
    numbers = "-".join(str(figure.number) for figure in chosen)
    write(tables, args.out / f"lamps-{numbers}.md", args.tables)


if __name__ == "__main__":
    main()
