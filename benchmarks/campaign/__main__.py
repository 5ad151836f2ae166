"""The fault campaign: `python -m benchmarks.campaign simulated|real|fuzz [--seed N] [--budget S]`.

Writes a report as Markdown and JSON. Exits 1 if a defect was found or a chosen fault never
happened, 130 after Ctrl-C (the report then holds what was done until there), and 0 otherwise. The
same seed makes the same simulated and fuzzed runs; for a real server it draws the same faults and
clients, whose order the machine decides.
"""

import argparse
import itertools
import sys
from functools import partial
from pathlib import Path

from benchmarks.campaign.conduct import conduct, interruptible
from benchmarks.campaign.report import Outcome, write

HOUR = 3600.0


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    args = _parser().parse_args(arguments)
    with interruptible():
        outcome, broken_off = CAMPAIGNS[args.campaign](args)
    about = {"campaign": args.campaign, "seed": args.seed, "budget_seconds": args.budget}
    text, data = write(args.report, args.campaign, outcome, about)
    kinds = ", ".join(f"{count} {kind}" for kind, count in outcome.by_kind.items())
    print(f"{outcome.sessions} {_things(args.campaign)} in {outcome.runs} runs: {kinds}")
    print(f"reports: {text} and {data}")
    if outcome.never:
        print(f"chosen, and never happened: {', '.join(outcome.never)}", file=sys.stderr)
    if broken_off:
        return 130
    return 1 if outcome.defects or outcome.never else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.campaign", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("campaign", choices=sorted(CAMPAIGNS))
    parser.add_argument("--seed", type=int, default=0, help="chooses every run; default 0")
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions or inputs at least")
    budget = "seconds; default one hour. real: up to 300 more, until each fault has happened"
    parser.add_argument("--budget", type=float, default=HOUR, help=budget)
    parser.add_argument("--jobs", type=int, default=2, help="processes of simulated and fuzz")
    parser.add_argument("--only", type=int, nargs="+", help="these runs alone, to see them again")
    layouts = "simulated: layouts of KV caches, with commas, such as window+full; default all"
    parser.add_argument("--layouts", help=layouts)
    parser.add_argument("--every", type=float, default=60, help="real: seconds between faults")
    parser.add_argument("--clients", type=int, default=8, help="real: clients at once")
    calm = "real: the last part of the budget, 0 to 1, in which no server and no engine is killed"
    parser.add_argument("--calm", type=float, default=0.0, help=calm)
    parser.add_argument("--faults", help="real: kinds of faults, with commas; default all")
    parser.add_argument("--report", type=Path, default=Path("campaign-report"), help="folder")
    return parser


def _things(campaign: str) -> str:
    return "inputs" if campaign == "fuzz" else "sessions"


def _simulated(args: argparse.Namespace) -> tuple[Outcome, bool]:
    from benchmarks.campaign.simulated.run import run
    from tests.scheduler.layouts import LAYOUTS

    layouts = tuple(args.layouts.split(",")) if args.layouts else LAYOUTS
    if unknown := set(layouts) - set(LAYOUTS):
        sys.exit(f"--layouts: unknown are {sorted(unknown)}; there are {', '.join(LAYOUTS)}")
    return _conduct(args, partial(run, args.seed, layouts=layouts))


def _fuzz(args: argparse.Namespace) -> tuple[Outcome, bool]:
    from benchmarks.campaign.fuzz.run import run

    return _conduct(args, partial(run, args.seed))


def _real(args: argparse.Namespace) -> tuple[Outcome, bool]:
    from benchmarks.campaign.real.run import KINDS, Plan, run

    kinds = args.faults.split(",") if args.faults else KINDS
    if unknown := set(kinds) - set(KINDS):
        sys.exit(f"--faults: unknown are {sorted(unknown)}; there are {', '.join(KINDS)}")
    return run(
        Plan(args.seed, args.sessions, args.budget, args.every, kinds, args.clients, args.calm)
    )


def _conduct(args: argparse.Namespace, job: partial[Outcome]) -> tuple[Outcome, bool]:
    indices = args.only or itertools.count()
    return conduct(
        job,
        indices,
        jobs=1 if args.only else args.jobs,
        budget=args.budget,
        wanted=args.sessions,
        title=args.campaign,
    )


CAMPAIGNS = {"simulated": _simulated, "fuzz": _fuzz, "real": _real}


if __name__ == "__main__":
    sys.exit(main())
