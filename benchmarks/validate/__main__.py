"""The simulator against vLLM's real engine on the CPU, on the same sessions.

Each round starts a fresh engine (a Llama of 25 M random parameters, as in `benchmarks.handling`),
measures it in place, and serves sessions of the six-tool mix that arrive at random moments and
whose tools really sleep. The same sessions are then simulated with the same settings, with steps
that take what the calibration says, what the run's own steps took on average, and that times the
pace of the machine in each second, which others may use too.

Compared are, session by session, the order of its events, and the order of events of different
sessions; and over all sessions latency (from arrival to the last token, less the tools' time) and
the time to the first token, after an arrival and after a tool. Real runs are kept under --runs and
not made again.
"""

import argparse
from pathlib import Path

from benchmarks.evidence.tables import add_option
from caesura.runtime.launch import prepare_environment


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.validate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--loads", nargs="+", type=float, default=[0.35, 0.5], metavar="LOAD")
    add("--rate", type=float, default=4.5, help="sessions per second at load 1")
    add("--rounds", type=int, default=2, help="each with its own engine and sessions")
    add("--seed", type=int, default=300, help="of the first round")
    add("--seconds", type=float, default=40, metavar="S", help="of arrivals")
    add("--warm-up", type=float, default=5, metavar="S", help="arrivals before are not counted")
    add(
        "--tail",
        type=float,
        default=10,
        metavar="S",
        help="count sessions whose tools end so many seconds after the arrivals, without waits",
    )
    add("--longest", type=float, default=90, metavar="S", help="cut a run after so many seconds")
    add("--kv-tokens", type=int, default=5440, metavar="N", help="tokens that the KV cache holds")
    add("--handling", default="caesura", help="of paused KV")
    add("--runs", type=Path, default=Path(".cache/validate"), help="folder of the kept real runs")
    add_option(parser)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    # What vLLM reads when it is imported, and its process inherits.
    prepare_environment(None)
    # Here and not above: the engine's process imports this file again, and vLLM is slow to import.
    from benchmarks.validate.series import main

    main(arguments)
