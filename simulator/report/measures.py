"""The title, the unit and the better direction of each measure in a report."""

import math
from dataclasses import dataclass
from typing import Literal

from caesura.simulator.study.summary import Estimate

Better = Literal["low", "high", ""]

UNKNOWN = "–"
"""The text in place of a missing value."""

SIGNIFICANT = 3


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure of `Figures`; its value times `scale` is in its unit."""

    name: str
    title: str
    unit: str = ""
    better: Better = "low"
    scale: float = 1.0

    @property
    def heading(self) -> str:
        """Return the title with its unit, for a column or an axis."""
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
"""The measures of the service that users get."""

GOODPUT = (
    Measure("goodput_share", "sessions within the objective", "%", "high", 100),
    Measure("goodput_sessions", "goodput", "sessions/s", "high"),
    Measure("goodput_tokens", "goodput", "tokens/s", "high"),
)
"""The measures that need an objective."""

HEADLINE = tuple(
    measure
    for measure in SERVICE
    if measure.name not in ("latency_median", "ttft_p99", "tokens_per_second")
)
"""The measures of `SERVICE` that fit a terminal."""

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
"""The measures of memory and steps."""

REPLICAS = (
    Measure("load_variation", "variation of requests"),
    Measure("busy_imbalance", "busiest over mean"),
    Measure("cached_share", "tokens cached", "%", "high", 100),
    Measure("recompute_share", "tokens recomputed", "%", scale=100),
    Measure("waste_preserve", "waste: preserve", "%", scale=100),
    Measure("busy_share", "devices busy", "%", "", 100),
    Measure("memory_share", "KV memory used", "%", "", 100),
)
"""The measures of several replicas: their balance, their caches and their waste."""

BY_NAME = {measure.name: measure for measure in (*REPLICAS, *SERVICE, *GOODPUT, *MEMORY)}


def number(value: float, like: float | None = None) -> str:
    """Return a number as text with three significant digits, or all digits before the point.

    With `like` it has as many decimals as `like` would have.
    """
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:,.{_decimals(value if like is None else like)}f}"


def estimated(found: Estimate, scale: float = 1.0) -> str:
    """Return a mean as text, with the half width of its interval if there is one."""
    text = number(found.mean * scale)
    if math.isnan(found.half):
        return text
    return f"{text} ±{number(found.half * scale, like=found.mean * scale)}"


def _decimals(value: float) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, SIGNIFICANT - 1 - math.floor(math.log10(abs(value))))
