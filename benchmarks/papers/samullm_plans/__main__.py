"""SamuLLM's experiments with plans, on simulated A100-80G devices.

    python -m benchmarks.papers.samullm_plans [--small] [--only TEXT]

Fang, Shen, Wang and Chen, "SamuLLM" (2025), section 5. Eight devices, step times from the authors'
timed iterations, output lengths from their distributions; see `models.py` and `applications.py`.
Measurements are kept in `.cache/papers`, so that an interrupted run goes on where it was.
"""

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.evidence.tables import add_option, tell
from benchmarks.papers.run import as_told, show
from benchmarks.papers.samullm_plans.measure import Plans, measured
from benchmarks.papers.samullm_plans.rows import EXPERIMENTS, KNOWN, STRATEGIES, Experiment
from benchmarks.papers.samullm_plans.tables import sheets


def main() -> int:
    """Measure what is not kept, and show the tables."""
    args = _arguments().parse_args()
    chosen = [one for one in EXPERIMENTS if (one.small or not args.small) and args.only in one.name]
    found: dict[tuple[str, str, bool], Plans] = {}
    cells = [cell for one in chosen for cell in _cells(one)]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=len(cells))
            for one, strategy, known in cells:
                bar.update(task, description=f"{one.name}: {strategy}")
                plans = measured(one, strategy, known, only_kept=args.kept)
                if plans is not None:
                    found[one.name, strategy, known] = plans
                bar.advance(task)
    except KeyboardInterrupt:
        print("interrupted; the finished measurements are kept", file=sys.stderr)
        return 130
    made = sheets(chosen, found)
    show(made)
    tell(args.tables, map(as_told, made))
    return 0


def _cells(one: Experiment) -> list[tuple[Experiment, str, bool]]:
    plain = [name for name in STRATEGIES if one.ablation or "no-preemption" not in name]
    cells = [(one, name, False) for name in plain]
    return cells + [(one, name, True) for name in KNOWN if one.ablation]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="one row of each application")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name holds TEXT")
    parser.add_argument("--kept", action="store_true", help="only show what was measured before")
    add_option(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
