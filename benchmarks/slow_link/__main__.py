"""Where does loading KV from the host beat recomputing it, and does the scheduler choose rightly?

For each rate a fresh engine starts (a Llama of 25 M random parameters) whose link to the host is
limited in its copier, so that the copies stay real. Two sessions of equal contexts pause there: one
with its KV on the host, one without. Both lose their KV on the device and come back in turn, alone
and beside requests that decode. In each pair, one session loads its context and the other
recomputes it, and the order changes from pair to pair.

Compared are the time to the first token after the return, and the delay of all requests together:
that time plus what each of the decoding requests lost meanwhile. Ratios are load to recompute, so
below 1 loading is better. "swaps" is what the scheduler's threshold says to the rates that it
would have learned, starting from its guess. Links that are kept are
not measured again, and --show measures none.
"""

import argparse
from pathlib import Path

from benchmarks.evidence.tables import add_option
from caesura.runtime.launch import prepare_environment


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.slow_link",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    default = [0.005, 0.01, 0.02, 0.04, 0.08, 0.32]
    add("--links", nargs="+", type=float, default=default, metavar="GB/S", help="rates of the link")
    add("--context", type=int, default=1024, metavar="N", help="tokens of the paused sessions")
    add("--beside", nargs="+", type=int, default=[0, 4, 16], metavar="N", help="decoding requests")
    add("--pairs", type=int, default=6, help="of a load and a recomputation, for each of the above")
    add("--out", type=Path, default=Path(".cache/slow_link/results.json"), help="the kept results")
    add("--show", action="store_true", help="print what is kept and measure nothing")
    add_option(parser)
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    # What vLLM reads when it is imported, and its process inherits.
    prepare_environment(None)
    # Here and not above: the engine's process imports this file again, and vLLM is slow to import.
    from benchmarks.slow_link.series import main

    main(arguments)
