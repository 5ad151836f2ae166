"""The highest load that a system carries, by a search within a number of runs.

A load is carried if the p99 of normalized latency (latency per decoded token, tools' time left
out) is at most three times that of an idle engine. Runs that were made for other reasons count too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.handling.figures import counted_sessions, normalized_latencies, percentile

FACTOR = 3.0
FIRST_LOAD = 0.4
GROWTH = 1.4
MAX_LOAD = 1.5


@dataclass(frozen=True)
class Knee:
    """Loads between which a system stops to hold the bound; None where no run says so.

    `holds` is the highest load that was carried below `fails`, the lowest that was not.
    """

    holds: float | None
    fails: float | None

    def next_load(self, resolution: float) -> float | None:
        """Return the load to try next, or None once the gap is within `resolution`."""
        if self.fails is None:
            higher = FIRST_LOAD if self.holds is None else self.holds * GROWTH
            return round(higher, 2) if higher <= MAX_LOAD else None
        lower = self.holds or 0.0
        if self.fails - lower <= resolution + 1e-9:
            return None
        return round((lower + self.fails) / 2, 2)

    def __str__(self) -> str:
        low = "-" if self.holds is None else f"{self.holds:g}"
        return f"{low} .. {'-' if self.fails is None else f'{self.fails:g}'}"


def idle_p99(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the p99 of normalized latency in seconds per token, of all these runs together."""
    return percentile([each for run in runs for each in normalized_latencies(run)], 0.99)


def carries(runs: Sequence[Mapping[str, Any]], bound: float) -> bool:
    """Return whether p99 over the sessions of all runs is at most `bound` seconds per token."""
    latencies = [
        latency if session["ended"] else math.inf
        for run in runs
        for session, latency in zip(counted_sessions(run), normalized_latencies(run), strict=True)
    ]
    return bool(latencies) and percentile(latencies, 0.99) <= bound


def knee(runs: Sequence[Mapping[str, Any]], system: str, bound: float) -> Knee:
    """Return the knee of a system, by its runs at all loads; rounds of a load count together."""
    by_load: dict[float, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["system"] == system:
            by_load.setdefault(run["load"], []).append(run)
    failing = [load for load, of in by_load.items() if not carries(of, bound)]
    fails = min(failing, default=None)
    holding = [load for load in by_load if fails is None or load < fails]
    return Knee(max(holding, default=None), fails)
