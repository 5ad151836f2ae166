"""Handlings of paused KV under load, against stock vLLM, in pairs.

Each run starts a fresh engine and serves sessions that call tools and arrive at random moments
(Poisson). In a round, all systems serve the same sessions at the same moments; the next round draws
others. The KV cache is made too small for all paused sessions at once (--pool). Latency is counted
from a session's arrival to its last token, less the time that its tools took.

Load 1 is the arrival rate that would keep an engine busy all the time if it computed nothing twice.
Stock vLLM does compute twice, and is busy all the time at about half of it.
It is estimated from a short measurement of the model, unless --rate gives it in sessions/s: give
it, as an earlier run printed it, to compare runs made at different times.

Times on a shared machine mean little by themselves: the second table of each load gives ratios,
pair by pair. "others" is the share of all cores that other programs used meanwhile, without those
that --beside N starts. The model computes in float32 where the processor has no bfloat16.

Every run is kept in a file under --runs, and a kept run is not made again unless --again is given.
So a table can be filled in pieces: --minutes N starts no run that would not end in time, Ctrl-C
ends a series early, and the same command goes on later. --show prints what is kept.

--knee also searches for the highest load at which the p99 of normalized latency (per decoded token)
stays under three times that of an idle engine, for each system. It halves the gap between loads
that hold and loads that fail until the gap is --resolution, and counts the table's runs too.
"""

import argparse
import math
from pathlib import Path

from benchmarks.evidence.tables import add_option
from benchmarks.handling import SYSTEMS

SHOWN = [
    "stock",
    "fcfs",
    "infercept",
    "lamps-infercept",
    "preserve",
    "caesura-ranking",
    "discard",
    "swap",
]
TOKEN_SCALES = {"mix": 1 / 4, "replay": 1 / 48}


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.handling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workload", choices=TOKEN_SCALES, default="mix", help="six tools, or recorded agents")
    known = f"of {', '.join(SYSTEMS)}"
    add("--systems", nargs="+", choices=SYSTEMS, default=SHOWN, metavar="SYSTEM", help=known)
    add("--loads", nargs="+", type=float, default=[0.3, 0.45, 0.6], metavar="LOAD")
    add("--rounds", type=int, default=3, help="rounds of pairs, each with its own seed")
    add("--knee", action="store_true", help="search for the highest load of each system")
    add("--resolution", type=float, default=0.05, help="of the search, in loads")
    add("--seed", type=int, default=100, help="of the first round")
    add("--rate", type=float, help="sessions per second at load 1 (default: measured)")
    size = parser.add_argument_group("size of a run")
    add = size.add_argument
    add("--window", type=float, default=60, metavar="S", help="seconds of arrivals")
    add("--warm-up", type=float, default=10, metavar="S", help="arrivals before are not counted")
    add(
        "--tail",
        type=float,
        default=15,
        metavar="S",
        help="count sessions whose tools end so many seconds after the window, without waits",
    )
    add("--longest", type=float, default=120, metavar="S", help="cut a run after so many seconds")
    add("--token-scale", type=float, help="scales token counts (mix 1/4, replay 1/48)")
    add("--pause-scale", type=float, default=0.35, help="scales the tools' seconds")
    machine = parser.add_argument_group("engine")
    add = machine.add_argument
    models = "random Llamas of so many parameters, or a hybrid with recurrent layers (Qwen3-Next)"
    add("--model", choices=("25m", "85m", "hybrid"), default="25m", help=models)
    add("--pool", type=float, default=0.4, help="KV cache, as part of what all sessions would hold")
    add("--blocks", type=int, help="room for so many times 32 tokens of KV, instead of --pool")
    add(
        "--batched-tokens", type=int, default=512, metavar="N", help="vLLM's max_num_batched_tokens"
    )
    add("--host-gib", type=float, default=2, help="host memory for swapped KV")
    add("--calibration", type=str, metavar="FILE", help="written by `caesura calibrate`")
    add("--link", type=float, metavar="GB/S", help="limit of the link to the host")
    add("--no-swap", action="store_true", help="leave the swap connector out")
    add(
        "--beside",
        type=int,
        default=0,
        metavar="N",
        help="keep so many cores busy with other programs meanwhile",
    )
    files = parser.add_argument_group("results")
    add = files.add_argument
    add("--runs", type=Path, default=Path(".cache/handling/runs"), help="folder of kept runs")
    add("--again", action="store_true", help="make runs again that are kept")
    add("--minutes", type=float, default=math.inf, help="start no run that would end later")
    add("--show", action="store_true", help="print what is kept and measure nothing")
    add_option(parser)
    args = parser.parse_args()
    if args.show and (args.rate is None or args.blocks is None):
        parser.error("--show needs --rate and --blocks, as the runs' command printed them")
    args.token_scale = args.token_scale or TOKEN_SCALES[args.workload]
    return args


if __name__ == "__main__":
    arguments = parse()
    # Here and not above: the engine's process imports this file again, and vLLM is slow to import.
    from benchmarks.handling.study.series import main

    main(arguments)
