"""Routers on 64 replicas: the table and the plot of docs/study/simulator.md, from a report.

    caesura simulate -w mix:tools=qa+math --replicas 64 --rate 160,288 --seconds 8 --warm-up 1
      --router affinity,affinity:slack=4,hash,least,prefix,random,one-queue --seeds 3 -o runs
    python -m benchmarks.routers runs

The plot has a panel per load: the mean time to the first token against how unevenly the requests
are spread, with the share of tokens that were computed again beside each router's name.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.charts import panels, to_png
from caesura.planning.show.gantt import PALETTE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "study" / "simulator.md"
IMAGE = ROOT / "docs" / "images" / "simulator-routers.png"
BEGIN, END = "<!-- begin routers -->", "<!-- end routers -->"

COLUMNS: tuple[tuple[str, str, float, int], ...] = (
    ("latency_mean", "mean latency [s]", 1, 2),
    ("latency_p99", "p99 latency [s]", 1, 1),
    ("ttft_mean", "mean TTFT [s]", 1, 3),
    ("ttft_p99", "p99 TTFT [s]", 1, 2),
    ("normalized_latency", "normalized latency [ms/token]", 1e3, 1),
    ("load_variation", "variation of requests", 1, 2),
    ("busy_imbalance", "busiest over mean", 1, 2),
    ("cached_share", "tokens cached [%]", 100, 1),
    ("recompute_share", "tokens recomputed [%]", 100, 1),
)
"""Measures, their headings, their scale and their decimals."""

Point = Mapping[str, Any]


def table(points: Sequence[Point]) -> str:
    """Return the routers' measures at one load as Markdown, with the half width of intervals."""
    lines = [
        f"| router | {' | '.join(heading for _, heading, _, _ in COLUMNS)} |",
        f"| --- |{' ---: |' * len(COLUMNS)}",
    ]
    for point in points:
        cells = [_cell(point["means"][name], scale, by) for name, _, scale, by in COLUMNS]
        lines.append(f"| `{point['policy']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(mean: Mapping[str, Any], scale: float, decimals: int) -> str:
    if mean["mean"] is None:
        return "–"
    text = f"{mean['mean'] * scale:,.{decimals}f}"
    half = mean["half"]
    return text if half is None else f"{text} ±{half * scale:,.{decimals}f}"


def draw(loads: Mapping[float, Sequence[Point]]) -> bytes:
    """Return the plot as PNG."""
    figure, axes = panels(len(loads), 3.6)
    for axis, (rate, points) in zip(axes, loads.items(), strict=True):
        for number, point in enumerate(points):
            means = point["means"]
            again = 100 * (means["recompute_share"]["mean"] or 0.0)
            place = means["load_variation"]["mean"], means["ttft_mean"]["mean"]
            halves = [means[name]["half"] or 0.0 for name in ("load_variation", "ttft_mean")]
            axis.errorbar(
                *place,
                xerr=halves[0],
                yerr=halves[1],
                fmt="o",
                color=PALETTE[number % len(PALETTE)],
                label=f"{point['policy']} ({again:.0f} % again)",
            )
        axis.set(
            title=f"{rate:g} sessions/s",
            xlabel="variation of requests over replicas",
            ylabel="mean TTFT [s]",
        )
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="x-small")
    return to_png(figure)


def main() -> None:
    """Write the table into the page, and the plot beside it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="the folder of `caesura simulate --out`")
    report = json.loads((parser.parse_args().folder / "report.json").read_text())
    loads: dict[float, list[Point]] = {}
    for point in report["points"]:
        loads.setdefault(point["rate"], []).append(point)
    parts = []
    for rate, points in loads.items():
        seeds = len(points[0]["seeds"])
        counted = math.fsum(points[0]["means"]["sessions"]["mean"] for _ in range(seeds))
        told = f"{seeds} seed{'s' * (seeds > 1)}, {counted:,.0f} counted sessions a router"
        parts.append(f"**{rate:g} sessions/s**, {told}\n\n{table(points)}")
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(f"{before}\n\n" + "\n\n".join(parts) + f"\n\n{after}")
    IMAGE.write_bytes(draw(loads))


if __name__ == "__main__":
    main()
