"""The tables of a series as data, for pages."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.evidence.tables import Table
from benchmarks.handling import STOCK, SYSTEMS
from benchmarks.handling.figures import first_turns
from benchmarks.handling.study.knee import FACTOR
from benchmarks.handling.study.report import Figures, figures_of, knees, systems_at
from benchmarks.pairs import median_interval, ratio

DEFAULT = "caesura"
"""The system with all of Caesura's defaults."""

FEWEST_TURNS = 12
"""Fewer first turns say nothing about their median."""

COLUMNS = {
    "latency_mean": "latency mean",
    "latency_p99": "p99",
    "normalized_p99": "per token p99",
    "ttft_first_mean": "TTFT first",
    "ttft_first_p99": "TTFT first p99",
    "ttft_resumed_mean": "TTFT resumed",
}


def tables(runs: Sequence[dict[str, Any]], window: float, rate: float) -> list[Table]:
    """Return seconds by load and system, ratios to stock and to the default, and the knees.

    Knees are there if they were searched. Sessions arrived within `window` seconds, and load 1 is
    `rate` sessions per second. Before all stands a summary of stock and the default, if both ran.
    """
    found = figures_of(runs, window)
    short = list(_summary(found))
    seconds = ("load", "system", "rounds", *COLUMNS.values(), "recomputed", "busy", "others", "cut")
    made: list[Table] = []
    if short:
        columns = ("load", "latency, stock [s]", "default", "recomputed, stock", "default", "ratio")
        made.append(Table.of(columns, short, "Mean latency, stock vLLM and the default", "summary"))
    made.append(Table.of(seconds, _absolute(found), "Seconds, medians of the rounds", "seconds"))
    for base, key, title in (
        (STOCK, "ratios", "Ratios to stock"),
        (DEFAULT, "parts", "Ratios to the default"),
    ):
        ratios = list(_ratios(found, base))
        if ratios:
            title = f"{title}, pair by pair: median [all of three pairs, or the middle half]"
            made.append(Table.of(("load", "system", *COLUMNS.values()), ratios, title, key))
    turns = list(_first_turns(runs))
    if turns:
        columns = ("load", "system", "first turns", "median ratio", "95% interval", "middle half")
        title = f"TTFT of first turns, each to the same turn's with {STOCK}"
        made.append(Table.of(columns, turns, title, "first-turns"))
    p99, of_system = knees(runs)
    if of_system:
        title = f"Up to which load the p99 per token is at most {FACTOR:g} times an idle engine's"
        rows: list[tuple[str, ...]] = []
        for system, knee in of_system.items():
            reached = "-" if knee.holds is None else f"{knee.holds * rate:.2f}"
            rows.append((system, _load(knee.holds), _load(knee.fails), reached))
        columns = ("system", "holds at", "fails at", "sessions/s")
        made.append(Table.of(columns, rows, f"{title} ({p99:.3f} s)", "knees"))
    return made


def _summary(found: Figures) -> Iterator[tuple[str, ...]]:
    for load in sorted({load for _, load, _ in found}):
        pairs = [
            (row, found[STOCK, load, index])
            for (name, at, index), row in found.items()
            if (name, at) == (DEFAULT, load) and (STOCK, load, index) in found
        ]
        if not pairs:
            continue
        ours, stock = zip(*pairs, strict=True)
        latency, recomputed = (
            [statistics.median(row[key] for row in rows) for rows in (stock, ours)]
            for key in ("latency_mean", "recomputed_share")
        )
        compared = ratio(*([row["latency_mean"] for row in rows] for rows in (ours, stock)))
        yield (
            f"{load:g}",
            *(f"{seconds:.3g}" for seconds in latency),
            *(f"{share:.0%}" for share in recomputed),
            str(compared),
        )


def _first_turns(runs: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each load and system: one round's mean hangs on its slowest prompts."""
    of_stock = {(run["load"], run["round"]): first_turns(run) for run in runs if _is(run, STOCK)}
    for load in sorted({load for load, _ in of_stock}):
        for system in SYSTEMS:
            pairs = [
                (seconds, of_stock[load, run["round"]][key])
                for run in runs
                if system != STOCK and _is(run, system) and run["load"] == load
                if (load, run["round"]) in of_stock
                for key, seconds in first_turns(run).items()
                if key in of_stock[load, run["round"]]
            ]
            if len(pairs) < FEWEST_TURNS:
                continue
            ratios = [one / other for one, other in pairs]
            low, high = median_interval(ratios)
            found = ratio(*zip(*pairs, strict=True))
            yield (
                f"{load:g}",
                system,
                f"{len(pairs)}",
                f"{found.median:.3f}",
                f"{low:.3f} .. {high:.3f}",
                f"{found.low:.3f} .. {found.high:.3f}",
            )


def _is(run: dict[str, Any], system: str) -> bool:
    return bool(run["system"] == system)


def _load(load: float | None) -> str:
    return "-" if load is None else f"{load:g}"


def _absolute(found: Figures) -> Iterator[tuple[str, ...]]:
    for load in sorted({load for _, load, _ in found}):
        for place, system in enumerate(systems_at(found, load)):
            rows = [row for (name, at, _), row in found.items() if (name, at) == (system, load)]
            middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            cut, counted = (sum(row[key] for row in rows) for key in ("cut", "counted"))
            yield (
                "" if place else f"{load:g}",
                system,
                f"{len(rows)}",
                *(f"{middle[key]:.3g}" for key in COLUMNS),
                *(f"{middle[key]:.0%}" for key in ("recomputed_share", "busy_share", "others")),
                f"{cut:.0f}/{counted:.0f}",
            )


def _ratios(found: Figures, base: str) -> Iterator[tuple[str, ...]]:
    """Yield a row for each load and system, but for stock and for `base`, which is compared to."""
    for load in sorted({load for _, load, _ in found}):
        for system in systems_at(found, load):
            pairs = [
                (row, found[base, load, index])
                for (name, at, index), row in found.items()
                if (name, at) == (system, load) and (base, load, index) in found
            ]
            if system not in (STOCK, base) and pairs:
                cells = (
                    str(ratio([one[key] for one, _ in pairs], [other[key] for _, other in pairs]))
                    for key in COLUMNS
                )
                yield (f"{load:g}", system, *cells)
