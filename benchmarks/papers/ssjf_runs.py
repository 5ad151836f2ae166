"""The runs behind SSJF's figures: three ways of batching, three schedulers, loads and bursts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.papers.ssjf_batches import answered
from caesura.simulator.policy import Policy
from caesura.simulator.predict import expect
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Cell
from caesura.simulator.workload.names import make_workload

HERE = Path(__file__).parent
CODE = (HERE / "ssjf_batches.py", HERE / "ssjf_runs.py")

MACHINE = "llama-2-7b-a100-80g"

ACCURACY = 0.615
"""Of SSJF's predictor, in five classes of equally many responses (section 4.3, Table 2)."""

ERROR = 0.336
"""The relative standard deviation of a prediction that has this accuracy here; see `accuracy`."""

SCHEDULERS = {
    "FCFS": {"ranking": "fcfs"},
    "SSJF": {"ranking": "ssjf", "prediction": f"oracle:error={ERROR},knows=lengths"},
    "SJF": {"ranking": "ssjf", "prediction": "oracle:knows=lengths"},
}
"""SJF knows the lengths: the oracle of the paper."""


@dataclass(frozen=True, slots=True)
class Batching:
    """`capacity` is how many requests a second FCFS completes when it always has some waiting.

    It is of lengths in full, and measured; loads are given in parts of it.
    """

    name: str
    most: int
    closed: bool
    capacity: float


BATCHINGS = (
    Batching("no batching", 1, False, 0.5),
    Batching("dynamic batching", 4, True, 1.1),
    Batching("continuous batching", 4, False, 2.0),
)


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals: so many times what FCFS can complete, `cv` the variation of their intervals."""

    load: float
    cv: float = 1.0


RATES = tuple(map(Load, (0.7, 0.9, 1.2, 2.0, 4.0)))
BURSTS = (Load(0.9), Load(0.9, 2.0), Load(0.9, 4.0))


@dataclass(frozen=True, slots=True)
class Size:
    """How many requests a run has in the mean, and by what their lengths are multiplied."""

    requests: int
    tokens: float


@dataclass(frozen=True, slots=True)
class Measure:
    """Mean seconds from arrival to answer, and answers per second while requests arrive."""

    jct: float
    throughput: float


def cell_of(batching: Batching, scheduler: str, load: Load, size: Size, seed: int) -> Cell:
    """Return a run."""
    settings = {"handling": "discard", "backfill": False, **SCHEDULERS[scheduler]}
    if batching.closed:
        settings["admission"] = "benchmarks.papers.ssjf_batches.Batches"
    policy = Policy(
        f"{scheduler}, {batching.name}",
        settings=settings,
        chunk_tokens=16_384,
        prefix_caching=False,
        host=False,
        most_running=batching.most,
    )
    arrivals = "" if load.cv == 1 else f",arrivals=bursty,cv={load.cv:g}"
    rate = load.load * batching.capacity / size.tokens
    workload = f"ssjf:tokens={size.tokens:g}{arrivals}"
    return Cell(workload, None, MACHINE, policy, rate, seed, size.requests / rate)


def measure(batching: Batching, cell: Cell, run: RunResult) -> Measure:
    """Measure a run, all of whose sessions have ended."""
    ends = answered(run, batching.closed)
    waited = [end - session.arrival for session, end in ends]
    in_time = sum(end <= cell.seconds for _, end in ends)
    return Measure(math.fsum(waited) / len(waited), in_time / cell.seconds)


def gains(measures: Sequence[tuple[Measure, Measure]]) -> tuple[float, float]:
    """Return by how many percent the mean JCT changes, and the factor on the throughput.

    Each of the pairs is of FCFS and of another scheduler under the same load; loads weigh alike.
    """
    changes = [other.jct / base.jct - 1 for base, other in measures]
    factors = [other.throughput / base.throughput for base, other in measures]
    return 100 * math.fsum(changes) / len(changes), math.fsum(factors) / len(factors)


@cache
def accuracy(error: float, requests: int = 10_000) -> float:
    """Return how often a prediction with this error falls into the right fifth of the lengths."""
    sessions = make_workload("ssjf", 1.0, requests, seed=0).sessions
    true = np.array([session.decode_tokens for session in sessions])
    told = np.array([expect(one, one.key, error, 0)[0].decode_tokens for one in sessions])
    edges = np.percentile(true, (20, 40, 60, 80))
    return float(np.mean(np.digitize(true, edges) == np.digitize(told, edges)))
