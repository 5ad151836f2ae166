"""Charts of measures against the rate, with a line per policy.

Policies differ in line and mark too, so that they can be told apart without colour.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from caesura.simulator.report.canvas import PALETTE, name_lines, panels, to_png
from caesura.simulator.report.measures import BY_NAME, Measure
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X")

CURVES = (
    "latency_mean",
    "latency_p99",
    "ttft_mean",
    "normalized_latency",
    "sessions_per_second",
    "tokens_per_second",
)

WITHIN = ("goodput_sessions", "goodput_tokens")
"""The measures that are drawn too if the study has an objective."""

ASIDE = 0.004
"""The distance between policies at the same rate, as a share of the axis."""

LOG_FROM = 10.0
"""A latency's axis is logarithmic if the largest value is this many times the smallest."""


def curves(study: Study, points: Sequence[Point]) -> bytes:
    """Draw the measures of `CURVES` with the 95 % intervals of their means, as PNG."""
    names = (*CURVES, *(WITHIN if study.slo is not None else ()))
    figure, axes = panels(len(names), 3.1)
    # The points stand side by side, so that their intervals do not cover each other.
    aside = ASIDE * (max(study.rates) - min(study.rates))
    middle = (len(study.policies) - 1) / 2
    load = "clients" if study.closed else "rate [sessions/s]"
    for axis, name in zip(axes, names, strict=True):
        measure = BY_NAME[name]
        for number, policy in enumerate(study.policy_names):
            mine = [point for point in points if point.name == policy]
            if mine:
                _curve(axis, measure, mine, number, aside * (number - middle))
        axis.set(xlabel=load, ylabel=measure.heading)
        axis.grid(alpha=0.3)
        values = [point.means[name].mean * measure.scale for point in points]
        if measure.better == "low" and _wide(values):
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
    name_lines(figure, axes[0])
    return to_png(figure)


def _curve(
    axis: "Axes", measure: Measure, points: Sequence[Point], number: int, aside: float
) -> None:
    """Draw the line of one policy, moved right of its rates by `aside`."""
    means = [point.means[measure.name] for point in points]
    halves = [0.0 if math.isnan(each.half) else each.half * measure.scale for each in means]
    axis.errorbar(
        [point.rate + aside for point in points],
        [each.mean * measure.scale for each in means],
        yerr=halves,
        label=points[0].name,
        color=PALETTE[number % len(PALETTE)],
        # With four lines and seven marks, a pair repeats only after 28 policies.
        linestyle=LINES[number % len(LINES)],
        marker=MARKS[number % len(MARKS)],
        markersize=4,
        capsize=3,
    )


def _wide(values: Sequence[float]) -> bool:
    known = [value for value in values if value > 0]
    return bool(known) and max(known) > LOG_FROM * min(known)
