"""The tables of the study, in Markdown."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.asking_models.series import (
    KNOWN,
    POLICIES,
    REPORTED_SEEDS,
    Cell,
    run_cell,
)
from benchmarks.asking_models.workload import SETTINGS, Setting, split_settings

WORDS = {
    "learned": "the learned mean",
    "plan": "the plan's mean",
    "load": "the load",
    "rough": "the load and the length, with errors",
    "lengths": "the load and the length",
    "true": "the true time",
}


def lines(folder: Path, seconds: float) -> Iterator[str]:
    """Yield the lines of the table in Markdown, from runs that are kept."""
    yield "| setting | policy | known of an answer | error | own time, s | whole, s | recomputed |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for setting in SETTINGS:
        for policy in POLICIES[setting.name]:
            base = _runs(setting, policy, "learned", folder, seconds)
            for known in KNOWN:
                runs = _runs(setting, policy, known, folder, seconds)
                yield _line(setting, policy, known, runs, base)


def split_lines(folder: Path, seconds: float) -> Iterator[str]:
    """Yield the table of the parts of one device's memory, in seconds, as means over the seeds."""
    head = "agents' KV, tokens | expert's | known of an answer | own time, s | answer, s | whole, s"
    yield f"| {head} |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for setting in split_settings():
        for known in ("learned", "lengths"):
            runs = _runs(setting, "fcfs", known, folder, seconds)
            own, answer, whole = (
                fmean(fmean(run[key]) for run in runs) for key in ("own", "answers", "whole")
            )
            parts = [machine.kv_tokens for machine in setting.machines()]
            cells = f"{parts[0]:,} | {parts[1]:,} | {WORDS[known]}"
            yield f"| {cells} | {own:.1f} | {answer:.1f} | {whole:.1f} |"


def _runs(
    setting: Setting, policy: str, known: str, folder: Path, seconds: float
) -> list[dict[str, Any]]:
    cells = (Cell(setting, policy, seed, known, seconds) for seed in REPORTED_SEEDS)
    return [run_cell(cell, folder) for cell in cells]


def _line(
    setting: Setting,
    policy: str,
    known: str,
    runs: list[dict[str, Any]],
    base: list[dict[str, Any]],
) -> str:
    errors = [run["error"] for run in runs if run["error"] is not None]
    cells = [
        setting.name,
        policy,
        WORDS[known],
        f"{fmean(errors):.0%}" if errors else "",
        _mean_or_ratio("own", runs, base, known),
        _mean_or_ratio("whole", runs, base, known),
        f"{sum(run['recomputed'] for run in runs) / sum(run['computed'] for run in runs):.1%}",
    ]
    return f"| {' | '.join(cells)} |"


def _mean_or_ratio(
    key: str, runs: list[dict[str, Any]], base: list[dict[str, Any]], known: str
) -> str:
    """Return the mean in seconds, or its ratio to that of the learned mean and the seeds' range."""
    if known == "learned":
        return f"{fmean(fmean(run[key]) for run in base):.1f}"
    ratios = [fmean(run[key]) / fmean(other[key]) for run, other in zip(runs, base, strict=True)]
    return f"{fmean(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
