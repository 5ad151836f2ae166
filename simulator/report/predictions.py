"""The table of predictors in a study of recorded sessions: their errors beside the latencies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from caesura.simulator.report.grids import Entry, Grid, Row
from caesura.simulator.report.measures import number
from caesura.simulator.study.conduct import Outcome

COLUMNS: tuple[tuple[str, str, str, str], ...] = (
    ("decode_tokens", "error", "tokens: error", "low"),
    ("decode_tokens", "pair_accuracy", "in order", "high"),
    ("calls_left", "error", "calls left: error", "low"),
    ("calls_left", "pair_accuracy", "in order", "high"),
    ("ends_within_3", "pair_accuracy", "3 or fewer left: AUC", "high"),
    ("ends_now", "pair_accuracy", "ends now: AUC", "high"),
    ("pause_seconds", "error", "pause: error [s]", "low"),
    ("long_pause", "pair_accuracy", "over 30 s: AUC", "high"),
)
"""Quantity, measure, heading, and the better direction of each column."""


def prediction_grids(outcome: Outcome) -> list[Grid]:
    """Return a table of predictors per machine and rate, of the first seed; none without them.

    An error is the mean absolute one. `in order` is the share of pairs that the predictions order
    rightly. A policy has a row for its predictor, and for each part that this mixes.
    """
    study, grids = outcome.study, []
    for machine in study.machines:
        for rate in study.rates:
            runs = [
                made
                for made in outcome.made
                if (made.cell.machine, made.cell.rate) == (machine, rate)
                and made.cell.seed == study.seeds[0]
                and made.predictions
            ]
            rows = [row for made in runs for row in _rows(made.cell.policy.name, made.predictions)]
            if rows:
                where = f", {machine}" if len(study.machines) > 1 else ""
                title = f"{study.load(rate)}{where}: predictions against what came"
                heads = tuple(heading for _, _, heading, _ in COLUMNS)
                grids.append(Grid(title, heads, tuple(_marked(rows))))
    return grids


def _rows(policy: str, predictions: Sequence[Mapping[str, Any]]) -> list[Row]:
    names = list(dict.fromkeys(each["predictor"] for each in predictions))
    known = {(each["predictor"], each["quantity"]): each for each in predictions}
    return [
        Row(
            f"{policy}: {name}",
            tuple(
                _entry(known.get((name, quantity), {}).get(measure))
                for quantity, measure, _, _ in COLUMNS
            ),
        )
        for name in names
    ]


def _entry(value: float | None) -> Entry:
    known = math.nan if value is None else value
    return Entry(number(known), known)


def _marked(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the best entry of each column marked, unless all are equal."""
    columns = []
    for column, (_, _, _, better) in zip(
        zip(*(row.entries for row in rows), strict=True), COLUMNS, strict=True
    ):
        values = {entry.value for entry in column if not math.isnan(entry.value)}
        best = (min if better == "low" else max)(values) if len(values) > 1 else math.nan
        columns.append([replace(entry, best=entry.value == best) for entry in column])
    entries = zip(*columns, strict=True)
    return [Row(row.head, tuple(each)) for row, each in zip(rows, entries, strict=True)]
