"""Verdicts: the default's measures as ratios to the best of the others, and the goals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from caesura.simulator.study.conduct import Made
from caesura.simulator.study.summary import Estimate, estimate, ratio

from .cases import DEFAULT, LOW_LOAD, OTHERS, STOCK


@dataclass(frozen=True, slots=True)
class Goal:
    """A measure of the default must be at most `most` times the least of the policies `of`."""

    measure: str
    title: str
    most: float
    of: tuple[str, ...] = OTHERS
    up_to: float = 1e9


GOALS = (
    Goal("latency_mean", "mean", 1.0),
    Goal("latency_p99", "p99", 1.05),
    Goal("ttft_mean", "mean TTFT", 1.05, (STOCK,), LOW_LOAD),
    Goal("ttft_p99", "p99 TTFT", 1.05, (STOCK,), LOW_LOAD),
)

Runs = Mapping[str, Sequence[Made]]
"""The runs of one case at one load, by policy, in the order of their seeds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ratio of the default to the best of the others, by a goal."""

    case: str
    load: float
    goal: Goal
    default: Estimate
    best: str
    ratio: Estimate

    @property
    def met(self) -> bool:
        """Return whether the mean over the seeds meets the goal."""
        return self.ratio.mean <= self.goal.most

    @property
    def near(self) -> bool:
        """Return whether it is within 1 % of the goal, or meets it."""
        return self.ratio.mean <= self.goal.most + 0.01


def verdicts(case: str, load: float, runs: Runs) -> Iterator[Verdict]:
    """Yield the verdicts of one case at one load."""
    for goal in GOALS:
        if load > goal.up_to:
            continue
        others = {name: values(runs[name], goal.measure) for name in goal.of}
        best = min(others, key=lambda name: estimate(others[name]).mean)
        mine = values(runs[DEFAULT], goal.measure)
        yield Verdict(case, load, goal, estimate(mine), best, ratio(mine, others[best]))


def values(runs: Sequence[Made], measure: str) -> list[float]:
    """Return a measure of each run."""
    return [float(getattr(made.figures, measure)) for made in runs]
