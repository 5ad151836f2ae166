"""Throughput of rollouts: how many samples a trainer gets in a second, in the ways that it asks.

A trainer's step asks each prompt several times. All samples call tools: quick ones and slow ones,
some of them often and some for long. Each is forced to decode the same tokens in every way. The KV
cache is made too small for all samples at once (--pool).

    python -m benchmarks.rollouts              # on vLLM's CPU engine, in pairs, in some 30 minutes
    python -m benchmarks.rollouts --simulated  # on a simulated GPU
"""

import argparse
import os
from pathlib import Path

from rich.console import Console

from benchmarks.evidence.tables import add_option, tell


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rollouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--simulated", action="store_true", help="simulate a GPU instead")
    add("--samples", type=int, nargs="+", default=[8, 16], help="samples of a prompt (8 16)")
    add("--step", type=int, help="samples of a step (48; simulated 256)")
    add("--rounds", type=int, default=3, help="steps of each kind, each with its own seed (3)")
    add("--seed", type=int, default=2101, help="of the first round (2101)")
    real = parser.add_argument_group("on the CPU engine")
    add = real.add_argument
    add("--ways", nargs="+", default=None, metavar="WAY", help="trl, turns, samples, sessions")
    add("--model", choices=("25m", "85m"), default="25m", help="a random Llama of this size")
    add("--pool", type=float, default=0.4, help="KV cache, as part of what all samples hold (0.4)")
    add("--runs", type=Path, default=Path(".cache/rollouts"), help="folder of kept runs")
    simulated = parser.add_argument_group("simulated")
    add = simulated.add_argument
    add("--machine", default="qwen3-32b-h100-tp2", help="as `caesura machines` names them")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    add_option(parser)
    args = parser.parse_args()
    args.step = args.step or (256 if args.simulated else 48)
    for samples in args.samples:
        if samples < 1 or args.step % samples:
            parser.error(f"--step {args.step} is no multiple of --samples {samples}")
    return args


def main(args: argparse.Namespace) -> None:
    """Measure, and print the table; write it as data if all of it is there."""
    console = Console(width=160)
    if args.simulated:
        from benchmarks.rollouts.simulated import measure as simulate

        found, whole = simulate(args, console), True
    else:
        from benchmarks.rollouts.drive import WAYS
        from benchmarks.rollouts.real import measure, table

        args.ways = args.ways or list(WAYS)
        unknown = [way for way in args.ways if way not in WAYS]
        if unknown:
            raise SystemExit(f"no way is named {', '.join(unknown)}; there are {', '.join(WAYS)}")
        whole = measure(args, console)
        found = table(args)
    print(found.markdown())
    if whole:
        tell(args.tables, [found])


if __name__ == "__main__":
    # The engine's process imports this file again, and vLLM is slow to import: so nothing above.
    main(parse())
