"""The report of a study: what was run and counted, as Markdown with all tables, and as JSON."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import caesura
from caesura.simulator.policy import Fleet
from caesura.simulator.study.conduct import Outcome
from caesura.simulator.study.plan import Study
from caesura.simulator.study.summary import Point, summarise
from caesura.simulator.study.tables import (
    BEST,
    CUT,
    Grid,
    memory_grids,
    plain,
    prediction_grids,
    rate_grids,
    ratio_grids,
    replica_grids,
    service_grids,
    to_markdown,
)

FORM = 1
"""The version of the form of `report.json`."""


def facts(study: Study) -> list[tuple[str, str]]:
    """Return the inputs of a study as names and values."""
    whole = "to the end of all sessions"
    loads = _listed(study.rates)
    told = [
        ("workload", study.workload),
        ("machine", "; ".join(study.machines)),
        ("load", f"{loads} clients" if study.closed else f"{loads} sessions/s"),
        ("seeds", _listed(study.seeds)),
        ("counted", _counted(study)),
        ("runs", whole if study.window is None else f"cut off after {study.window:g} s"),
        ("baseline", study.baseline or "none"),
        ("version", f"caesura {caesura.__version__}"),
    ]
    fleets = [policy.fleet for policy in study.policies if policy.fleet is not None]
    if fleets:
        told.append(("replicas", _fleet(fleets[0], study)))
    if study.data is not None:
        told.insert(1, ("data", study.data.name))
    if study.slo is not None:
        told.append(("objective", f"{study.slo}, in seconds, in every segment of a session"))
    return told


def notes(outcome: Outcome) -> list[str]:
    """Return notes on how to read the figures, on cut-off sessions and on failed runs."""
    study = outcome.study
    said = ["Times are simulated. Latency is from arrival to the end, without the time of tools."]
    if len(study.seeds) > 1:
        said.append("Means over seeds ± half of their 95 % confidence interval (Student's t).")
    else:
        said.append("One seed: nothing is known of the spread.")
    if len(study.policies) > 1:
        said.append(f"{BEST} best of its column.")
    cut = sum(made.figures.unfinished for made in outcome.made)
    if cut:
        counted = sum(made.figures.sessions for made in outcome.made)
        said.append(
            f"{CUT} not finished: {cut:,} of {counted:,} counted sessions were cut off and are in"
            " no latency; true latencies are higher."
        )
    said += [f"Failed: {failure.cell}: {failure.reason}" for failure in outcome.failures]
    return said


def _fleet(fleet: Fleet, study: Study) -> str:
    loads = f"{_listed(tuple(rate / fleet.replicas for rate in study.rates))} sessions/s each"
    return f"{fleet.replicas}, {loads}; loads told every {fleet.epoch_seconds:g} s"


def _counted(study: Study) -> str:
    if study.closed:
        early = "sixth" if study.warm_up is None else f"{study.warm_up:g} s"
        return f"sessions sent after the first {early} of a run's arrivals, the warm-up"
    begin, end = study.counted(0.0)
    return (
        f"sessions that arrive from {begin:g} s to {end:g} s, when arrivals end;"
        f" the first {begin:g} s are warm-up"
    )


def _listed(values: tuple[float, ...] | tuple[int, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def write_report(outcome: Outcome, folder: Path, trace: str = "") -> Path:
    """Write `report.md` and `report.json` into a folder, and return the text's path.

    `trace` is the page in that folder that shows what each policy did. Raises `OSError`.
    """
    points = summarise(outcome)
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "report.md"
    text.write_text(to_markdown_page(outcome, points, trace), encoding="utf-8")
    figures = json.dumps(to_json(outcome, points), indent=1) + "\n"
    (folder / "report.json").write_text(figures, encoding="utf-8")
    return text


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


def to_markdown_page(outcome: Outcome, points: list[Point], trace: str = "") -> str:
    """Return a report as Markdown, whose markup is escaped in all that users named."""
    study = outcome.study
    title = f"Caesura: {study.workload} on {', '.join(study.machines)}"
    listed = "\n".join(f"- {name}: {plain(value)}" for name, value in facts(study))
    parts = [f"# {plain(title)}", listed, *map(plain, notes(outcome))]
    if trace:
        parts.append(f"[What each policy did, request by request]({trace})")
    for heading, grids in sections_of(outcome, points):
        if grids:
            parts += [f"## {plain(heading)}", *map(to_markdown, grids)]
    return "\n\n".join(parts) + "\n"


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
