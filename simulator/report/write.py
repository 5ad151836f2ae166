"""Write a report into a folder: a page, the same as Markdown, the charts, and a JSON file."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from caesura.simulator.report.canvas import can_draw
from caesura.simulator.report.facts import facts, notes
from caesura.simulator.report.grids import (
    Grid,
    memory_grids,
    rate_grids,
    ratio_grids,
    replica_grids,
    service_grids,
)
from caesura.simulator.report.html import page
from caesura.simulator.report.plots import Chart, draw
from caesura.simulator.report.predictions import prediction_grids
from caesura.simulator.report.table import plain, to_markdown
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.summary import Point, summarise

FORM = 1
"""The version of the form of `report.json`."""


@dataclass(frozen=True, slots=True)
class Report:
    """The written page, and whether it has charts, which need matplotlib."""

    page: Path
    charts: bool


def write_report(outcome: Outcome, folder: Path, trace: str = "") -> Report:
    """Write `report.html`, `report.md`, `report.json` and `plots/` into a folder.

    `trace` is the page in that folder that shows what each policy did. Raises `OSError`.
    """
    points = summarise(outcome)
    charts = draw(outcome, points) if can_draw() else []
    title = f"Caesura: {outcome.study.workload} on {', '.join(outcome.study.machines)}"
    sections = sections_of(outcome, points)
    told, said = facts(outcome.study), notes(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    _write_charts(charts, folder / "plots")
    _write(folder / "report.html", page(title, told, said, sections, charts, trace))
    markdown = _markdown(title, told, said, sections, charts)
    _write(folder / "report.md", markdown)
    _write(folder / "report.json", json.dumps(to_json(outcome, points), indent=1) + "\n")
    return Report(folder / "report.html", bool(charts))


def sections_of(outcome: Outcome, points: list[Point]) -> list[tuple[str, list[Grid]]]:
    """Return the tables of a report under their headings."""
    study = outcome.study
    return [
        ("What users get", service_grids(study, points)),
        (f"Compared with {study.baseline}", ratio_grids(study, points)),
        ("Balance and caches", replica_grids(study, points)),
        ("Memory and steps", memory_grids(study, points)),
        ("By rate", rate_grids(study, points)),
        ("Predictions", prediction_grids(outcome)),
    ]


def to_json(outcome: Outcome, points: list[Point]) -> dict[str, Any]:
    """Return all figures as JSON; null stands for a missing value."""
    study = outcome.study
    form = {
        "form": FORM,
        "study": {
            **dict(facts(study)),
            "rates": study.rates,
            "seeds": study.seeds,
            "machines": study.machines,
            "policies": [asdict(policy) for policy in study.policies],
            "seconds": study.seconds,
            "closed": study.closed,
            "warm_up": study.warm_up,
            "window": study.window,
            "baseline": study.baseline,
            "slo": str(study.slo) if study.slo is not None else None,
        },
        "notes": notes(outcome),
        "points": [
            {
                "machine": point.machine,
                "policy": point.name,
                "rate": point.rate,
                "seeds": point.seeds,
                "unfinished": point.unfinished,
                "means": {name: asdict(mean) for name, mean in point.means.items()},
                "ratios": {name: asdict(ratio) for name, ratio in point.ratios.items()},
            }
            for point in points
        ],
        "runs": [
            {
                "machine": made.cell.machine,
                "policy": made.cell.policy.name,
                "rate": made.cell.rate,
                "seed": made.cell.seed,
                "file": made.task.path.name,
                "figures": asdict(made.figures),
                "predictions": made.predictions,
            }
            for made in outcome.made
        ],
        "failures": [
            {"run": str(failure.cell), "reason": failure.reason} for failure in outcome.failures
        ],
    }
    nulled: dict[str, Any] = _nulled(form)
    return nulled


def _nulled(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _nulled(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_nulled(each) for each in value]
    return value


def _markdown(
    title: str,
    told: list[tuple[str, str]],
    said: list[str],
    sections: list[tuple[str, list[Grid]]],
    charts: list[Chart],
) -> str:
    listed = "\n".join(f"- {name}: {plain(value)}" for name, value in told)
    parts = [f"# {plain(title)}", listed, *map(plain, said)]
    parts += [f"![{plain(chart.title)}](plots/{chart.name}.png)" for chart in charts]
    for heading, grids in sections:
        if grids:
            parts += [f"## {plain(heading)}", *map(to_markdown, grids)]
    return "\n\n".join(parts) + "\n"


def _write_charts(charts: list[Chart], folder: Path) -> None:
    if not charts:
        return
    folder.mkdir(exist_ok=True)
    for chart in charts:
        (folder / f"{chart.name}.png").write_bytes(chart.png)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
