"""The charts of the pages in docs: panels, one legend, the PNG, and measures against the rate.

Policies differ in line and mark too, so that they can be told apart without colour.
"""

import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caesura.planning.show.gantt import PALETTE
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point
from caesura.simulator.study.tables import BY_NAME, Measure

PANELS = 3
"""The number of panels in a row."""

PANEL_WIDTH = 4.2
"""The width of a panel in inches."""

DPI = 110


def panels(count: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure and its `count` panels, `height` inches high; `options` are `subplots`'."""
    columns = min(count, PANELS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(PANEL_WIDTH * columns, height * rows + 0.4), layout="constrained")
    axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def name_lines(figure: Figure, axis: Axes, columns: int = PANELS) -> None:
    """Add one legend below all panels, from the entries of `axis`."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG; the same figure gives the same bytes."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI, metadata={"Software": None})
    return image.getvalue()


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
    axis: Axes, measure: Measure, points: Sequence[Point], number: int, aside: float
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
