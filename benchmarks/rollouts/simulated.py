"""Rollouts on a simulated GPU: each sample by itself, over stock vLLM and over Caesura."""

import argparse
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from rich.console import Console
from rich.progress import track

from benchmarks.evidence.tables import Table
from benchmarks.pairs import ratio
from benchmarks.rollouts.groups import LARGE
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import parse_policy
from caesura.simulator.session import Session, Workload
from caesura.simulator.study.work import simulate_workload

POLICIES = ("stock", "stock-offload", "caesura")
BASELINE = "stock-offload"
COLUMNS = (
    "samples of a prompt",
    "policy",
    "samples/s",
    f"to `{BASELINE}`, by pair",
    "computed again [%]",
    "half ended after [s]",
    "all after [s]",
)


@dataclass(frozen=True)
class Cell:
    """One simulated step."""

    machine: str
    policy: str
    prompts: int
    samples: int
    seed: int


@dataclass(frozen=True)
class Found:
    """Seconds until the last and until half of the samples ended, and tokens computed again."""

    cell: Cell
    seconds: float
    half: float
    again: float

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.cell.prompts * self.cell.samples / self.seconds


def workload(cell: Cell) -> Workload:
    """Return the step's samples; those of a group share their prompt."""
    drawn = LARGE.draw(cell.prompts, cell.samples, cell.seed)
    sessions = (
        Session(
            each.key,
            each.kind,
            each.arrival_seconds,
            each.segments,
            shared_name=each.group,
            shared_tokens=each.segments[0].given_tokens,
        )
        for each in drawn
    )
    return Workload("rollouts", tuple(sessions), seed=cell.seed)


def simulate(cell: Cell) -> Found:
    """Simulate one step; without a window every sample ends."""
    run = simulate_workload(workload(cell), make_machine(cell.machine), parse_policy(cell.policy))
    totals, ends = run.totals, [each.ended for each in run.sessions]
    computed = totals.decode_tokens + totals.prefill_tokens + totals.recompute_tokens
    return Found(cell, max(ends), median(ends), totals.recompute_tokens / computed)


def cells(args: argparse.Namespace) -> list[Cell]:
    """Return all steps."""
    return [
        Cell(args.machine, policy, args.step // samples, samples, args.seed + index)
        for samples in args.samples
        for policy in POLICIES
        for index in range(args.rounds)
    ]


def measure(args: argparse.Namespace, console: Console) -> Table:
    """Simulate all steps, and return their table."""
    wanted = cells(args)
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        made = pool.imap(simulate, wanted)
        found = list(track(made, "simulating", total=len(wanted), console=console))
    return Table.of(COLUMNS, _rows(found))


def _rows(found: Sequence[Found]) -> Iterator[Sequence[str]]:
    groups: dict[tuple[int, str], list[Found]] = {}
    for one in found:
        groups.setdefault((one.cell.samples, one.cell.policy), []).append(one)
    for (samples, policy), runs in groups.items():
        base = groups[samples, BASELINE]
        beside = ratio([one.rate for one in runs], [one.rate for one in base])
        yield (
            str(samples),
            f"`{policy}`",
            f"{fmean(one.rate for one in runs):.3g}",
            "1" if policy == BASELINE else str(beside),
            f"{100 * fmean(one.again for one in runs):.1f}",
            f"{fmean(one.half for one in runs):.0f}",
            f"{fmean(one.seconds for one in runs):.0f}",
        )
