"""InferCept's waste shares (sections 3.2, 5.1 and 5.2) from runs that are cut off, not drained."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.papers.infercept_systems import DISCARD, IMPROVED, INFERCEPT, PRESERVE, SWAP
from benchmarks.papers.run import Measured, Row, mean_by
from caesura.simulator.latency.analytic import Roofline
from caesura.simulator.latency.machines import make_machine
from caesura.simulator.policy import Policy

HALF_TIME = 60
"""Percent of the time for which the paper says how much of the memory is held."""


def recompute_time_share(run: Measured) -> float:
    """Return the part of the engine's busy time that recomputed tokens took.

    Each at 2P/F, as in a step beyond saturation, which is where most are: their attention and what
    hides behind reading the weights are not looked at.
    """
    totals, latency = run.run().totals, make_machine(run.cell.machine).latency
    if not isinstance(latency, Roofline):
        raise TypeError(f"{latency.name} does not say what a token takes")
    per_token = 2 * latency.parameters / latency.devices / latency.flops
    return totals.recompute_tokens * per_token / totals.busy_seconds


def held_share(run: Measured, percent: float = HALF_TIME) -> float:
    """Return the part of the memory that paused requests hold for at least `percent` of the time.

    Of the time after the first sixth of the run, in which the memory fills.
    """
    whole = run.run()
    line = whole.timeline
    names = "running_blocks", "paused_blocks", "queued_blocks", "free_blocks"
    total = sum(line[name][-1] for name in names)
    start = whole.totals.seconds / 6
    held = [
        blocks for at, blocks in zip(line["at"], line["paused_blocks"], strict=True) if at > start
    ]
    return float(np.percentile(held, 100 - percent)) / total


def stall_time_share(run: Measured) -> float:
    """Return the part of the engine's busy time in which a step waited for copies."""
    totals = run.run().totals
    return totals.stall_seconds / totals.busy_seconds


def whole_waste(run: Measured) -> float:
    """Return all waste as a part of the memory's block-seconds."""
    found = run.figures
    return found.waste_recompute + found.waste_preserve + found.waste_stall


def waste_rows(runs: Sequence[Measured], rate: float) -> list[Row]:
    """Return the paper's shares, in percent, beside those of the runs at that rate."""

    def percent(policy: Policy, value: Callable[[Measured], float]) -> float:
        chosen = (run for run in runs if run.cell.rate == rate and run.cell.policy == policy)
        found = mean_by(chosen, lambda cell: cell.policy.name, value)
        return 100 * found.get(policy.name, math.nan)

    def recomputed(policy: Policy) -> float:
        return percent(policy, lambda run: run.figures.waste_recompute)

    def stalled(policy: Policy) -> float:
        return percent(policy, lambda run: run.figures.waste_stall)

    return [
        Row("vLLM: waste by recomputation", 27.0, recomputed(DISCARD)),
        Row(
            "vLLM: forward time recomputing",
            "37 to 40",
            percent(DISCARD, recompute_time_share),
        ),
        Row(
            f"Preserve: memory that paused requests hold for {HALF_TIME} % of the time",
            "nearly 50",
            percent(PRESERVE, held_share),
        ),
        Row("Swap: waste by waiting", 26.0, stalled(SWAP)),
        Row("Swap: time waiting for copies", "over 25", percent(SWAP, stall_time_share)),
        Row("InferCept: all waste", 0.69, percent(INFERCEPT, whole_waste)),
        Row(
            "InferCept: recomputation waste less than ImprovedDiscard's by",
            "over 60",
            100 * (1 - recomputed(INFERCEPT) / recomputed(IMPROVED)),
        ),
        Row(
            "InferCept: swap waste less than Swap's by",
            96.0,
            100 * (1 - stalled(INFERCEPT) / stalled(SWAP)) if stalled(SWAP) else None,
        ),
    ]
