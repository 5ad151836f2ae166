"""What is run for which figure of the LAMPS paper, and what the paper shows there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.papers.lamps_claims import (
    GPTJ,
    GPTJ_MULTI_3,
    GPTJ_SINGLE_5,
    GPTJ_TOOLBENCH_3,
    MULTI,
    SINGLE,
    TOOLBENCH,
    VICUNA,
    VICUNA_MULTI_4,
    VICUNA_ONE,
    VICUNA_SINGLE_4,
)
from benchmarks.papers.lamps_run import Setup, Wanted
from benchmarks.papers.lamps_systems import (
    ERRORS,
    FROM_INFERCEPT,
    FROM_VLLM,
    OTHERS,
    PAPER,
    THRESHOLD_NAMES,
    mistaken,
)

Chain = tuple[Setup, tuple[tuple[str, str], ...]]
"""A setup, and systems of which each adds something to the one before it."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the paper: what it shows, by which measures, and what is run for it.

    `grid` are setups with the systems that run on them; those of `more` are left out if it is to
    be quick. `chains` are systems that differ by one change each. `says` is what the paper finds.
    """

    number: int
    shows: str
    measures: tuple[str, ...]
    grid: tuple[tuple[Setup, tuple[str, ...]], ...]
    more: tuple[tuple[Setup, tuple[str, ...]], ...] = ()
    chains: tuple[Chain, ...] = ()
    says: str = ""

    def setups(self, quick: bool) -> tuple[tuple[Setup, tuple[str, ...]], ...]:
        """Return the setups and their systems."""
        return self.grid if quick else self.grid + self.more

    def wanted(self, quick: bool) -> Iterator[Wanted]:
        """Return all that is to be run."""
        for setup, systems in self.setups(quick):
            yield from ((setup, system) for system in systems)
        for setup, chain in self.chains:
            yield from ((setup, system) for system, _ in chain)


MEANS = ("latency_mean", "latency_p99", "ttft_mean", "ttft_p99")
THRESHOLDS = tuple(THRESHOLD_NAMES.values())
ERROR_NAMES = (
    "lamps-handling-backfilled",
    "lamps-paper",
    *(mistaken(error).name for error in ERRORS),
)
ALL = (*PAPER, *OTHERS)
CHAINED = tuple(dict.fromkeys(name for name, _ in (*FROM_VLLM, *FROM_INFERCEPT)))

OVERLOADED = Setup(VICUNA_ONE, MULTI, 1)
"""Where a queue stands after a minute. Sessions with slow tools last for minutes, so that a short
run of a larger memory ends before it is full: figures 9 to 11 use this one if they are to be quick.
"""


def _sweep(
    machine: str, workload: str, rates: Sequence[float], systems: tuple[str, ...] = PAPER
) -> tuple[tuple[Setup, tuple[str, ...]], ...]:
    return tuple((Setup(machine, workload, rate), systems) for rate in rates)


FIGURES = {
    figure.number: figure
    for figure in (
        Figure(
            6,
            "latency and TTFT against the rate",
            MEANS,
            grid=(
                *_sweep(GPTJ, SINGLE, (3, 5, 7)),
                *_sweep(GPTJ, MULTI, (2,)),
                (GPTJ_MULTI_3, ALL),
                (GPTJ_TOOLBENCH_3, PAPER),
                *_sweep(VICUNA, SINGLE, (3, 4)),
                *_sweep(VICUNA, MULTI, (4,)),
                *_sweep(VICUNA, TOOLBENCH, (3,)),
            ),
            more=(
                *_sweep(GPTJ, SINGLE, (1, 9)),
                *_sweep(GPTJ, MULTI, (1, 2.5, 4)),
                *_sweep(GPTJ, TOOLBENCH, (1, 1.5, 2)),
                *_sweep(VICUNA, SINGLE, (2, 5, 6)),
                *_sweep(VICUNA, MULTI, (1, 2, 3)),
                *_sweep(VICUNA, TOOLBENCH, (1, 2)),
                *_sweep(GPTJ, SINGLE, (7,), ALL),
                *_sweep(GPTJ, TOOLBENCH, (3,), ALL),
            ),
            chains=((GPTJ_MULTI_3, FROM_INFERCEPT),),
            says="LAMPS lowers means at and above the knee; its tails grow faster with the rate.",
        ),
        Figure(
            7,
            "latency and TTFT at 5 requests/s",
            ("latency_mean", "ttft_mean"),
            grid=(
                (GPTJ_SINGLE_5, PAPER),
                *_sweep(GPTJ, MULTI, (5,)),
                *_sweep(GPTJ, TOOLBENCH, (5,)),
            ),
            more=tuple(
                (Setup(VICUNA, workload, 5), PAPER) for workload in (SINGLE, MULTI, TOOLBENCH)
            ),
            says="Multi-API and ToolBench take longer than single-API; LAMPS is best on each.",
        ),
        Figure(
            8,
            "throughput, on Vicuna 13B",
            ("sessions_per_second", "tokens_per_second"),
            grid=(
                (VICUNA_SINGLE_4, PAPER),
                (VICUNA_MULTI_4, PAPER),
                *_sweep(VICUNA, TOOLBENCH, (3,)),
            ),
            more=_sweep(VICUNA, SINGLE, (6, 8)),
            says="Higher than InferCept's but on ToolBench, where it is slightly lower.",
        ),
        Figure(
            9,
            "the starvation threshold, multi-API",
            ("latency_mean", "latency_p99", "sessions_per_second"),
            grid=((OVERLOADED, THRESHOLDS),),
            more=_sweep(GPTJ, MULTI, (2.5, 3, 4), THRESHOLDS),
            says="A threshold lowers tails and raises throughput; 100 is a good balance.",
        ),
        Figure(
            10,
            "what the components do, multi-API",
            (*MEANS, "sessions_per_second"),
            grid=((OVERLOADED, ALL),),
            more=_sweep(VICUNA, MULTI, (3, 4), CHAINED),
            chains=((OVERLOADED, FROM_VLLM), (OVERLOADED, FROM_INFERCEPT)),
            says="Predicted handling alone is about InferCept; most comes from the scheduling.",
        ),
        Figure(
            11,
            "errors of prediction, multi-API",
            ("latency_median", "latency_mean", "sessions_per_second"),
            grid=((OVERLOADED, ERROR_NAMES),),
            more=_sweep(GPTJ, MULTI, (3, 8), ERROR_NAMES),
            says="Only large errors (30-50 %) raise the median latency, mostly at 8-10 requests/s.",
        ),
    )
}
"""By number. Beside the paper's rates stand ours at which a machine begins to saturate."""
