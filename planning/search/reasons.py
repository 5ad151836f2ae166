"""Why a plan lost against another, in a sentence from numbers."""

from collections.abc import Sequence
from statistics import fmean

from caesura.planning.plan import Plan
from caesura.planning.search.follow import Followed

MIN_SHARE = 0.1
"""The smallest part of the lost time that a reason must explain to be named."""


def why_not(
    best: Plan, best_ends: Sequence[Followed], other: Plan, other_ends: Sequence[Followed]
) -> str:
    """Return how much longer the other plan takes on average, and what differs the most."""
    lost = other.makespan.mean - best.makespan.mean
    if lost < 0:
        return (
            f"{other.strategy} takes {-lost:.1f} s less ({-lost / best.makespan.mean:.1%}), but a"
            " plan whose models share devices must gain more"
        )
    if lost == 0:
        return f"{other.strategy} takes as long, {other.makespan.mean:.1f} s"
    return (
        f"{other.strategy} takes {lost:.1f} s longer ({lost / best.makespan.mean:.1%}): "
        f"{_difference(best_ends, other_ends, lost, best.devices)}"
    )


def _difference(
    best: Sequence[Followed], other: Sequence[Followed], lost: float, devices: int
) -> str:
    """Return what explains most of the lost seconds."""
    loading = fmean(one.loading_seconds for one in other) - fmean(
        one.loading_seconds for one in best
    )
    idle = fmean(one.idle_seconds for one in other) - fmean(one.idle_seconds for one in best)
    tail = fmean(one.tail_seconds for one in other) - fmean(one.tail_seconds for one in best)
    parts = [
        (loading / devices, f"it loads models for {loading:.1f} device-seconds more"),
        (idle / devices, f"its devices are without a model for {idle:.1f} s more"),
        (tail, f"its last model runs {tail:.1f} s longer after all others have finished"),
    ]
    share, text = max(parts)
    if share < MIN_SHARE * lost:
        return "its models make less of their devices"
    return text
