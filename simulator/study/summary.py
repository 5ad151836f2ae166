"""The summary of a study's runs: means over seeds, and ratios to the baseline."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from caesura.simulator.policy import Policy
from caesura.simulator.study.conduct import Made, Outcome
from caesura.simulator.study.figures import Figures
from caesura.simulator.study.intervals import Estimate, estimate, ratio

MEASURES = tuple(field.name for field in fields(Figures))
"""The names of all measures of a run."""


@dataclass(frozen=True, slots=True)
class Point:
    """A policy on a machine at a rate, over its seeds.

    `means` and `ratios` are by measure; `ratios` is empty without a baseline. `unfinished` counts
    the sessions of all seeds that were cut off.
    """

    machine: str
    policy: Policy
    rate: float
    seeds: tuple[int, ...]
    means: dict[str, Estimate]
    ratios: dict[str, Estimate]
    unfinished: int

    @property
    def name(self) -> str:
        """Return the policy's name."""
        return self.policy.name


def summarise(outcome: Outcome) -> list[Point]:
    """Return a point for each machine, rate and policy with a run, in that order."""
    study = outcome.study
    found: dict[tuple[str, float, str], list[Made]] = {}
    for made in outcome.made:
        cell = made.cell
        found.setdefault((cell.machine, cell.rate, cell.policy.name), []).append(made)
    return [
        _point(runs, found.get((machine, rate, study.baseline), ()))
        for machine in study.machines
        for rate in study.rates
        for policy in study.policies
        if (runs := found.get((machine, rate, policy.name)))
    ]


def _point(runs: Sequence[Made], baseline: Sequence[Made]) -> Point:
    cell = runs[0].cell
    return Point(
        machine=cell.machine,
        policy=cell.policy,
        rate=cell.rate,
        seeds=tuple(made.cell.seed for made in runs),
        means={name: estimate(list(_values(runs, name))) for name in MEASURES},
        ratios=_ratios(runs, {made.cell.seed: made for made in baseline}),
        unfinished=sum(made.figures.unfinished for made in runs),
    )


def _ratios(runs: Sequence[Made], baseline: dict[int, Made]) -> dict[str, Estimate]:
    """Return the ratios to the baseline over the seeds that both have."""
    pairs = [(made, baseline[made.cell.seed]) for made in runs if made.cell.seed in baseline]
    if not pairs:
        return {}
    return {
        name: ratio(
            list(_values((each for each, _ in pairs), name)),
            list(_values((base for _, base in pairs), name)),
        )
        for name in MEASURES
    }


def _values(runs: Iterable[Made], name: str) -> Iterable[float]:
    for made in runs:
        value = getattr(made.figures, name)
        yield float(value) if value is not None else math.nan
