"""What is it worth to know how long another model will work?

Agents ask an expert, each model on a simulated engine with the scheduler that serves. An agent is
paused until the expert has answered, its queue included. Both engines run on one virtual time, so
what the agents' engine decides changes when the expert is asked.

Compared is what the agents' engine knows of an answer's time when it is asked for: the mean that it
learned; a plan's mean, which other questions gave; the mean of answers at the expert's load, as the
tool `ask_model` forecasts it; the length of the answer and the load, where a rough predictor of
lengths errs by a factor of about 1.6; and the true time, which an earlier run of the same questions
gave. The error is the mean absolute error of the forecasts as a share of the mean pause.

"Own time" is the time that an agent waits for its own engine, "whole" includes the expert. Both are
means over all agents, for the learned mean in seconds, for the others as a ratio to it: the mean
over the seeds, and their range. "Recomputed" is relative to all other computed tokens. Loads were
chosen on other sessions. The last table shares the memory of one device between both models; its
times are means in seconds. Runs are kept, so that an interrupted study goes on where it was.
"""

import argparse
import logging
from pathlib import Path

from rich.console import Console
from rich.progress import track

from benchmarks.asking_models.series import CHOICE_SEED, cells, run_cell, split_cells
from benchmarks.asking_models.tables import lines, split_lines


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.asking_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seconds", type=float, default=80.0, metavar="S", help="span of the agents' arrivals")
    add("--out", type=Path, default=Path(".cache/asking_models"), help="folder of the kept runs")
    add("--choose", action="store_true", help="run the seed on which loads were chosen, and stop")
    add("--show", action="store_true", help="print the table of kept runs, and run what it lacks")
    return parser.parse_args()


def main() -> None:
    """Run what is missing, and print the table."""
    asked = parse()
    logging.disable(logging.WARNING)  # vLLM's remarks on each scheduler
    seeds = {"seeds": (CHOICE_SEED,)} if asked.choose else {}
    wanted = [] if asked.show else list(cells(asked.seconds, **seeds))
    wanted += [] if asked.show or asked.choose else split_cells(asked.seconds)
    for cell in track(wanted, "simulating", console=Console(stderr=True)):
        run_cell(cell, asked.out)
    if asked.choose:
        return
    for line in (*lines(asked.out, asked.seconds), "", *split_lines(asked.out, asked.seconds)):
        print(line)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: finished runs are kept, start again to go on") from None
