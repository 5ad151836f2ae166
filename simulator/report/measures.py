"""What each measure is called in a report, in which unit it is written, and which way is better."""

import math
from dataclasses import dataclass
from typing import Literal

from caesura.simulator.study.intervals import Estimate

Better = Literal["low", "high", ""]

UNKNOWN = "–"
"""Stands where there is no value."""

SIGNIFICANT = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of `Figures`; `scale` takes its value to the unit."""

    name: str
    title: str
    unit: str = ""
    better: Better = "low"
    scale: float = 1.0

    @property
    def heading(self) -> str:
        """The title with its unit, as over a column or beside an axis."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


SERVICE = (
    Measure("latency_mean", "mean latency", "s"),
    Measure("latency_median", "median latency", "s"),
    Measure("latency_p99", "p99 latency", "s"),
    Measure("ttft_mean", "mean TTFT", "s"),
    Measure("ttft_p99", "p99 TTFT", "s"),
    Measure("normalized_latency", "normalized latency", "ms/token", scale=1e3),
    Measure("sessions_per_second", "sessions", "1/s", "high"),
    Measure("tokens_per_second", "tokens", "1/s", "high"),
)
"""What users get."""

HEADLINE = tuple(
    measure
    for measure in SERVICE
    if measure.name not in ("latency_median", "ttft_p99", "tokens_per_second")
)
"""What fits a terminal of that."""

MEMORY = (
    Measure("waste_recompute", "waste: recompute", "%", scale=100),
    Measure("waste_preserve", "waste: preserve", "%", scale=100),
    Measure("waste_stall", "waste: stall", "%", scale=100),
    Measure("recompute_share", "tokens recomputed", "%", scale=100),
    Measure("preemptions", "preemptions"),
    Measure("stall_seconds", "stalled", "s"),
    Measure("steps", "steps", "", ""),
    Measure("busy_share", "device busy", "%", "", 100),
    Measure("memory_share", "KV memory used", "%", "", 100),
)
"""What that takes."""

BY_NAME = {measure.name: measure for measure in (*SERVICE, *MEMORY)}


def number(value: float, like: float | None = None) -> str:
    """Write a number with three significant digits, or all before the point.

    With `like` it has as many decimals as that would have.
    """
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.{_decimals(value if like is None else like)}f}"


def estimated(found: Estimate, scale: float = 1.0) -> str:
    """Write a mean, and the half width of its interval if there is one."""
    text = number(found.mean * scale)
    if math.isnan(found.half):
        return text
    return f"{text} ±{number(found.half * scale, like=found.mean * scale)}"


def _decimals(value: float) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))
