"""The common parts of all charts: panels, a palette, and the PNG.

matplotlib draws them; it is imported at its first use.
"""

import io
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from caesura.distribution import install
from caesura.scheduler.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = f"charts take matplotlib: {install('plots')}"

BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK, BROWN = "#e69f00", "#56b4e9", "#000000", "#8c6d31"

PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, BROWN)
"""Okabe and Ito's colours, which colour-blind people can tell apart. A brown replaces their yellow,
which is hard to see on white."""

PANELS = 3
"""The number of panels in a row."""

PANEL_WIDTH = 4.2
"""The width of a panel in inches."""

DPI = 110


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def demand_matplotlib() -> None:
    """Raise `UsageError` that says how to install matplotlib if it is missing."""
    if not can_draw():
        raise UsageError(MISSING)


def panels(count: int, height: float, **options: Any) -> "tuple[Figure, list[Axes]]":
    """Return a figure and its `count` panels, `height` inches high; `options` are `subplots`'."""
    from matplotlib.figure import Figure

    columns = min(count, PANELS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(PANEL_WIDTH * columns, height * rows + 0.4), layout="constrained")
    axes: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axis in axes[count:]:
        axis.set_axis_off()
    return figure, axes[:count]


def name_lines(figure: "Figure", axis: "Axes", columns: int = PANELS) -> None:
    """Add one legend below all panels, from the entries of `axis`."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def to_png(figure: "Figure") -> bytes:
    """Return the figure as PNG; the same figure gives the same bytes."""
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=DPI, metadata={"Software": None})
    return image.getvalue()
