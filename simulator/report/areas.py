"""Charts of the KV cache: its blocks by owner over time, and its waste by cause."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from caesura.simulator.report.canvas import (
    BLACK,
    BLUE,
    ORANGE,
    PANELS,
    PURPLE,
    VERMILION,
    name_lines,
    panels,
    to_png,
)
from caesura.simulator.report.measures import BY_NAME
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWNERS = (
    ("running_blocks", "running", BLUE, ""),
    ("queued_blocks", "queued", ORANGE, "//"),
    ("paused_blocks", "paused", PURPLE, ".."),
    ("free_blocks", "free", "#eeeeee", ""),
)
HOSTED: dict[str, Any] = {"color": BLACK, "linestyle": ":", "linewidth": 1.3}
WASTES = (
    ("waste_recompute", "recompute", VERMILION, ""),
    ("waste_preserve", "preserve", PURPLE, "//"),
    ("waste_stall", "stall", BLACK, ".."),
)


def memory(runs: Sequence[RunResult]) -> bytes:
    """Draw a panel per run: blocks of the KV cache by owner, and those on the host; as PNG.

    The host has an axis of its own on the right, since it holds many times more than the device.
    """
    figure, axes = panels(len(runs), 2.8, sharex=True, sharey=True)
    most = max(max(run.timeline["host_blocks"]) for run in runs)
    for number, (axis, run) in enumerate(zip(axes, runs, strict=True)):
        _owners(axis, run)
        axis.set(title=run.policy, xlabel="time [s]")
        axis.tick_params(labelbottom=True)
        if most > 0:
            last = number == len(runs) - 1 or number % PANELS == PANELS - 1
            _hosted(axis, run, most, last)
    for axis in axes[::PANELS]:
        axis.set_ylabel("KV cache [blocks]")
    name_lines(figure, axes[0], columns=len(OWNERS) + 1)
    return to_png(figure)


def _owners(axis: "Axes", run: RunResult) -> None:
    areas = axis.stackplot(
        run.timeline["at"],
        *(run.timeline[column] for column, _, _, _ in OWNERS),
        labels=[label for _, label, _, _ in OWNERS],
        colors=[colour for _, _, colour, _ in OWNERS],
    )
    for area, (_, _, _, hatch) in zip(areas, OWNERS, strict=True):
        area.set(hatch=hatch, edgecolor="#00000040", linewidth=0.0)
    axis.margins(x=0)


def _hosted(axis: "Axes", run: RunResult, most: float, named: bool) -> None:
    host = axis.twinx()
    host.plot(run.timeline["at"], run.timeline["host_blocks"], **HOSTED)
    host.set_ylim(0, most * 1.05)
    host.tick_params(labelright=named)
    if named:
        host.set_ylabel("on the host [blocks]")
    # The legend shows the lines of the first axes, so this line without points adds its entry.
    axis.plot([], [], label="on the host (right axis)", **HOSTED)


def wastes(study: Study, points: Sequence[Point]) -> bytes:
    """Draw a panel per rate: the share of the KV cache's time that is wasted, by cause; as PNG."""
    rates = [rate for rate in study.rates if any(point.rate == rate for point in points)]
    figure, axes = panels(len(rates), 1.0 + 0.28 * len(study.policies), sharex=True)
    for axis, rate in zip(axes, rates, strict=True):
        here = [point for point in points if point.rate == rate]
        names = [point.name for point in here]
        left = [0.0] * len(here)
        for name, label, colour, hatch in WASTES:
            scale = BY_NAME[name].scale
            means = [point.means[name].mean * scale for point in here]
            values = [0.0 if math.isnan(mean) else mean for mean in means]
            axis.barh(names, values, left=left, color=colour, hatch=hatch, label=label, ec="white")
            left = [before + value for before, value in zip(left, values, strict=True)]
        axis.invert_yaxis()
        axis.set(title=study.load(rate), xlabel="share of all block-seconds [%]")
        axis.tick_params(labelbottom=True)
    name_lines(figure, axes[0])
    return to_png(figure)
