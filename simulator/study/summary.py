"""The summary of a study's runs: means over seeds, and paired ratios to the baseline.

Seeds are independent and few, so the intervals come from Student's t distribution.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from caesura.simulator.policy import Policy
from caesura.simulator.study.conduct import Made, Outcome
from caesura.simulator.study.figures import Figures

T_975 = (
    12.7062047362, 4.3026527297, 3.1824463053, 2.7764451052, 2.5705818366,
    2.4469118511, 2.3646242516, 2.3060041352, 2.2621571628, 2.2281388520,
    2.2009851601, 2.1788128297, 2.1603686565, 2.1447866879, 2.1314495456,
    2.1199052992, 2.1098155778, 2.1009220402, 2.0930240544, 2.0859634473,
    2.0796138447, 2.0738730679, 2.0686576104, 2.0638985616, 2.0595385528,
    2.0555294386, 2.0518305165, 2.0484071418, 2.0452296421, 2.0422724563,
)  # fmt: skip
"""The 0.975 quantiles of Student's t distribution with 1 to 30 degrees of freedom."""

Z_975 = 1.959963984540054

FEWEST = 3
"""Runs of which an interval is given: two have one, but it is as good as infinite."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `count` runs; the true mean is within `half` of it with 95 % confidence.

    `half` is NaN for fewer than `FEWEST` runs; both are NaN without a run.
    """

    mean: float
    half: float
    count: int


def t_quantile(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t distribution, to 7 digits.

    Beyond the table it uses the expansion in 1/freedom (Abramowitz and Stegun 26.7.5). Raises
    `ValueError` for less than one degree of freedom.
    """
    if freedom < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, got {freedom}")
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = Z_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / math.pow(freedom, power) for power, term in enumerate(terms, start=1))


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of runs with different seeds, and its 95 % interval.

    Runs without a value (NaN) do not count.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Estimate(math.nan, math.nan, 0)
    mean = math.fsum(known) / len(known)
    return Estimate(mean, _half([value - mean for value in known]), len(known))


def ratio(of: Sequence[float], to: Sequence[float]) -> Estimate:
    """Return the ratio of the means of paired runs, and its 95 % interval.

    The runs of a pair share their seed, and so their sessions and arrivals. This is the classical
    ratio estimator (Cochran, Sampling Techniques, 3rd ed., equation 6.4). Its variance is that of
    the residuals `of - ratio * to`, in which common effects cancel. Pairs without a value (NaN) do
    not count. The ratio is NaN unless the denominator is above 0. Raises `ValueError` if `of` and
    `to` differ in length.
    """
    pairs = [
        (each, base)
        for each, base in zip(of, to, strict=True)
        if not (math.isnan(each) or math.isnan(base))
    ]
    below = math.fsum(base for _, base in pairs)
    if below <= 0:
        return Estimate(math.nan, math.nan, len(pairs))
    found = math.fsum(each for each, _ in pairs) / below
    half = _half([each - found * base for each, base in pairs])
    return Estimate(found, half / (below / len(pairs)), len(pairs))


def _half(residuals: Sequence[float]) -> float:
    """Return the half width of the interval of a mean; the residuals' own mean is 0."""
    count = len(residuals)
    if count < FEWEST:
        return math.nan
    variance = math.fsum(residual**2 for residual in residuals) / (count - 1)
    return t_quantile(count - 1) * math.sqrt(variance / count)


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
