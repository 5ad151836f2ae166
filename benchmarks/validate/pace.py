"""A machine that others use too: its pace, second by second, as a real run has met it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.validate.steps import Row, RunCost
from caesura.intercept.kv.costs import CostModel
from caesura.simulator.engine.clock import Clock
from caesura.simulator.machine import StepShape

WINDOW = 0.5
"""Seconds over which the pace is averaged."""


@dataclass(frozen=True, slots=True)
class Paced:
    """Steps take what `cost` says, times the pace of that second; 1.0 is the run's mean.

    `paces` are those of windows of `WINDOW` seconds, from the run's second 0; `clock` is the one
    that the simulation is given to set.
    """

    name: str
    cost: CostModel
    paces: Sequence[float]
    clock: Clock

    def seconds(self, step: StepShape) -> float:
        """Return the seconds that a step takes that begins now, without copies."""
        index = int(self.clock.now / WINDOW)
        pace = self.paces[index] if index < len(self.paces) else 1.0
        return self.cost.step_seconds(step.tokens, step.context) * pace


def paces(rows: Sequence[Row], found: RunCost, began: float, seconds: float) -> list[float]:
    """Return how long the steps of each window took, over what they cost; 1.0 without any."""
    took: dict[int, float] = defaultdict(float)
    cost: dict[int, float] = defaultdict(float)
    for row in rows:
        index = int((row.began - began) / WINDOW)
        took[index] += row.ended - row.began + found.gap
        cost[index] += found.cost.step_seconds(int(row.tokens), int(row.context))
    windows = range(int(seconds / WINDOW) + 1)
    return [took[index] / cost[index] if cost[index] else 1.0 for index in windows]


def unevenness(values: Sequence[float]) -> float:
    """Return the mean deviation of the pace from its mean, relative."""
    mean = fmean(values)
    return fmean(abs(value / mean - 1) for value in values)
