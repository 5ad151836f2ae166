"""The tables of ratios, and the chart of mean against p99."""

import math
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.charts import name_lines, panels, to_png
from benchmarks.evidence.tables import Table
from caesura.planning.show.gantt import PALETTE
from caesura.simulator.study.summary import Estimate, estimate

from .cases import DEFAULT, OTHERS
from .judge import GOALS, Goal, Runs, Verdict, values

MARKS = ("*", "o", "s", "^", "D")
TICKS = (1, 1.05, 1.1, 1.2, 1.5)
WIDE_TICKS = (1, 1.5, 2, 3, 5, 10)
LOW_END = 0.99
LEAST_RANGE = 1.12
"""The least end of an axis, so that differences of a thousandth look as small as they are."""


def table(found: Sequence[Verdict], capacities: Mapping[str, float]) -> Table:
    """Return a row for each case and load, and a column for each goal."""
    heads = [f"{goal.title} (≤ {goal.most:g})" for goal in GOALS]
    cells: dict[tuple[str, float], dict[str, Verdict]] = {}
    for one in found:
        cells.setdefault((one.case, one.load), {})[one.goal.measure] = one
    rows = [
        (
            case,
            f"{load:.0%}",
            f"{load * capacities[case]:.3g}",
            *(_cell(row.get(goal.measure)) for goal in GOALS),
        )
        for (case, load), row in cells.items()
    ]
    return Table.of(("workload", "load", "sessions/s", *heads), rows, key="cells")


def _cell(one: Verdict | None) -> str:
    """Return the default's value, and its ratio to the best of the others; bold if not met."""
    if one is None:
        return ""
    spread = "" if math.isnan(one.ratio.half) else f" ±{one.ratio.half:.2f}"
    text = f"{one.ratio.mean:.3f}{spread} of {one.best}"
    return f"{one.default.mean:.3g} s, " + (text if one.met else f"**{text}**")


def counts(found: Iterable[Verdict]) -> Table:
    """Return a row for each goal: how many cells meet it, and the worst one."""
    listed = list(found)
    mine = [(goal, [one for one in listed if one.goal is goal]) for goal in GOALS]
    rows = [_count(goal, verdicts) for goal, verdicts in mine if verdicts]
    columns = ("goal", "cells", "meet it", "within 1 % of it", "the worst", "ratio", "to")
    return Table.of(columns, rows, key="goals")


def _count(goal: Goal, mine: Sequence[Verdict]) -> tuple[str, ...]:
    worst = max(mine, key=lambda one: one.ratio.mean)
    met, near = sum(one.met for one in mine), sum(one.near for one in mine)
    return (
        f"{goal.title} ≤ {goal.most:g}",
        f"{len(mine)}",
        f"{met}",
        f"{near}",
        f"{worst.case} at {worst.load:.0%}",
        f"{worst.ratio.mean:.3f}",
        f"`{worst.best}`",
    )


def chart(runs: Mapping[tuple[str, float], Runs], loads: Sequence[float]) -> bytes:
    """Draw mean against p99 as ratios to the least of each case, a panel for each load, as PNG."""
    figure, axes = panels(len(loads), 3.4)
    for axis, load in zip(axes, loads, strict=True):
        cases = [runs[key] for key in runs if key[1] == load]
        for number, name in enumerate((DEFAULT, *OTHERS)):
            points = [_point(name, each) for each in cases]
            axis.scatter(
                [mean for mean, _ in points],
                [p99 for _, p99 in points],
                s=70 if name == DEFAULT else 22,
                marker=MARKS[number],
                color=PALETTE[number],
                label=name,
                zorder=3 if name == DEFAULT else 2,
            )
        axis.set(
            title=f"{load:.0%} of capacity",
            xlabel="mean / least mean",
            ylabel="p99 / least p99",
        )
        for ruler, set_scale in ((axis.xaxis, axis.set_xscale), (axis.yaxis, axis.set_yscale)):
            set_scale("log")
            low, high = ruler.get_view_interval()
            high = max(high, LEAST_RANGE)
            ticks = [tick for tick in (TICKS if high < 2 else WIDE_TICKS) if tick <= high]
            ruler.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
            ruler.set_ticks([], minor=True)
            ruler.set_view_interval(min(low, LOW_END), high, ignore=True)
        axis.grid(alpha=0.3)
    name_lines(figure, axes[0], 5)
    return to_png(figure)


def _point(name: str, runs: Runs) -> tuple[float, float]:
    """Return a policy's mean and p99 latency, each as a ratio to the least of all policies."""
    ratios = []
    for measure in ("latency_mean", "latency_p99"):
        means: dict[str, Estimate] = {key: estimate(values(runs[key], measure)) for key in runs}
        ratios.append(means[name].mean / min(each.mean for each in means.values()))
    return ratios[0], ratios[1]
