"""What SSJF gains over FCFS, in three ways of batching: the paper's figures and ours.

    python -m benchmarks.papers.ssjf [--quick | --full]

Qiu et al., "Efficient Interactive LLM Serving with Proxy Model-based Sequence Length Prediction"
(SSJF, 2024), section 4.2: mean job completion time (JCT) and throughput with varying rates and
varying burstiness, with the lengths predicted and with the true ones (SJF). The paper does not say
at which rates; here they are given in parts of what FCFS can complete, and each is shown.

The prediction is not a proxy model's but the truth with a normal error, as large as to put as many
responses into the right one of five classes as the paper's predictor does. All lengths are
quartered unless `--full` is given, which changes no ratio: a step costs what it costs.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.evidence.tables import add_option
from benchmarks.papers.run import CACHE, Row, Sheet, beside_the_paper, run_cells, show, write
from benchmarks.papers.ssjf_runs import (
    BATCHINGS,
    BURSTS,
    CODE,
    ERROR,
    RATES,
    SCHEDULERS,
    Load,
    Measure,
    Size,
    accuracy,
    cell_of,
    gains,
    measure,
)
from caesura.simulator.study.plan import Cell
from caesura.simulator.workload.names import make_workload

FULL = Size(1000, 1.0)
QUARTER = Size(250, 0.25)
QUICK = Size(120, 0.125)

PAPER_RATES = {
    "no batching": ((-34.5, 3.6), (-43.7, 4.7)),
    "dynamic batching": ((-39.6, 3.0), (-58.2, 4.1)),
    "continuous batching": ((-33.2, 2.8), (-43.0, 3.2)),
}
PAPER_BURSTS = {
    "no batching": ((-30.5, 2.6), (-37.6, 3.4)),
    "dynamic batching": ((-39.0, 2.6), (-52.9, 3.8)),
    "continuous batching": ((-35.0, 2.2), (-41.5, 2.7)),
}
"""JCT in percent and throughput as a factor against FCFS, of SSJF and of SJF (section 4.2)."""

Paper = Mapping[str, tuple[tuple[float, float], tuple[float, float]]]

Measures = Mapping[tuple[str, str, Load], Measure]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the runs that are missing, and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    given_size = parser.add_mutually_exclusive_group()
    given_size.add_argument("--quick", action="store_true", help="120 short requests a run")
    given_size.add_argument("--full", action="store_true", help="1,000 of full length: hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=CACHE, help="folder for the Markdown")
    add_option(parser)
    given = parser.parse_args(arguments)
    size = QUICK if given.quick else FULL if given.full else QUARTER
    measures = _measures(size, given.seed, given.jobs)
    sheets = [
        paper_sheet(measures, RATES, PAPER_RATES, "rates"),
        paper_sheet(measures, BURSTS, PAPER_BURSTS, "burstiness"),
        load_sheet(measures, size),
    ]
    show(sheets)
    write(sheets, given.out / "ssjf.md", given.tables)


def _measures(size: Size, seed: int, jobs: int) -> Measures:
    keys = [
        (batching, scheduler, load)
        for batching in BATCHINGS
        for load in dict.fromkeys((*RATES, *BURSTS))
        for scheduler in SCHEDULERS
    ]
    named = {_name(cell_of(*key, size, seed)): key for key in keys}
    made = run_cells([cell_of(*key, size, seed) for key in keys], code=CODE, jobs=jobs)
    found = {}
    for run in made:
        batching, scheduler, load = named[_name(run.cell)]
        found[batching.name, scheduler, load] = measure(batching, run.cell, run.run())
    return found


def _name(cell: Cell) -> tuple[str, str, float]:
    return cell.workload, cell.policy.name, cell.rate


def paper_sheet(measures: Measures, loads: Sequence[Load], paper: Paper, what: str) -> Sheet:
    """Return the mean gains over loads beside the paper's."""
    rows = []
    for batching in BATCHINGS:
        for scheduler, (change, factor) in zip(("SSJF", "SJF"), paper[batching.name], strict=True):
            pairs = _pairs(measures, batching.name, scheduler, loads)
            ours = gains(pairs) if pairs else (None, None)
            name = f"{batching.name}, {scheduler}"
            rows.append(Row(f"{name}: JCT, %", change, ours[0]))
            rows.append(Row(f"{name}: throughput, x", factor, ours[1]))
    said = ", ".join(_load(load) for load in loads)
    about = f"against FCFS, mean over {said}; a predictor with accuracy {accuracy(ERROR):.3f}"
    return beside_the_paper(f"SSJF with varying {what}", about, rows)


def fluid_gain(load: float, requests: int = 10_000) -> float:
    """Return SJF's throughput over FCFS' where arrivals bring `load` times what can be served.

    In the fluid limit, without batching: the device serves 1 / `load` of the work, FCFS so many
    of the requests, SJF those shortest ones that make up this work.
    """
    sessions = make_workload("ssjf", 1.0, requests, seed=0).sessions
    lengths = np.sort([session.decode_tokens for session in sessions])
    served = np.searchsorted(np.cumsum(lengths), lengths.sum() / load)
    return load * float(served) / len(lengths)


def load_sheet(measures: Measures, size: Size) -> Sheet:
    """Return the gains of every load by itself."""
    rows = []
    for load in dict.fromkeys((*RATES, *BURSTS)):
        row = [_load(load)]
        for batching in BATCHINGS:
            for scheduler in ("SSJF", "SJF"):
                pairs = _pairs(measures, batching.name, scheduler, (load,))
                row.append("{:+.1f} %, {:.2f}x".format(*gains(pairs)) if pairs else "-")
        rows.append(tuple(row))
    names = (f"{each.name}, {scheduler}" for each in BATCHINGS for scheduler in ("SSJF", "SJF"))
    fluid = ", ".join(f"{fluid_gain(load):.1f}x at {load}" for load in (2, 4, 16))
    about = (
        f"about {size.requests} requests a run, lengths times {size.tokens:g}; one seed. SJF's"
        f" throughput without batching in the fluid limit: {fluid}"
    )
    columns = ("load, in parts of FCFS' capacity", *names)
    return Sheet("JCT and throughput against FCFS, by load", about, columns, tuple(rows))


def _pairs(
    measures: Measures, batching: str, scheduler: str, loads: Sequence[Load]
) -> list[tuple[Measure, Measure]]:
    both = [
        (measures.get((batching, "FCFS", load)), measures.get((batching, scheduler, load)))
        for load in loads
    ]
    return [(base, other) for base, other in both if base is not None and other is not None]


def _load(load: Load) -> str:
    return f"{load.load:g}" if load.cv == 1 else f"{load.load:g} (cv {load.cv:g})"


if __name__ == "__main__":
    main()
