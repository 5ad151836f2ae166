"""Tables of figures and of ratios to stock, pair by pair."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.handling import STOCK, SYSTEMS
from benchmarks.handling.figures import LOWER_IS_BETTER, figures, handlings
from benchmarks.handling.run import IDLE
from benchmarks.handling.study.knee import FACTOR, Knee, idle_p99, knee
from benchmarks.pairs import ratio

Figures = dict[tuple[str, float, int], dict[str, float]]
"""By system, load and round."""


def figures_of(runs: Sequence[dict[str, Any]], window: float) -> Figures:
    """Return the figures of all runs under load, whose sessions arrived within `window` seconds."""
    return {
        (run["system"], run["load"], run["round"]): {
            **figures(run, window),
            "others": run["others"],
        }
        for run in runs
        if run["system"] != IDLE
    }


def systems_at(found: Figures, load: float) -> list[str]:
    """Return the systems that ran at a load, in the order of `SYSTEMS`."""
    return [name for name in SYSTEMS if any((name, at) == (n, load) for n, at, _ in found)]


def knees(runs: Sequence[dict[str, Any]]) -> tuple[float, dict[str, Knee]]:
    """Return the idle engine's p99 of normalized latency, and each system's knee.

    Without a run of an idle engine there are no knees.
    """
    idle = [run for run in runs if run["system"] == IDLE]
    if not idle:
        return 0.0, {}
    p99 = idle_p99(idle)
    present = {run["system"] for run in runs}
    return p99, {name: knee(runs, name, FACTOR * p99) for name in SYSTEMS if name in present}


def print_report(console: Console, runs: Sequence[dict[str, Any]], window: float) -> None:
    """Print what there is; a series that was interrupted gives what had been done."""
    found = figures_of(runs, window)
    for load in sorted({load for _, load, _ in found}):
        systems = systems_at(found, load)
        rounds = sorted({index for _, at, index in found if at == load})
        console.print(_absolute(found, load, systems, rounds))
        _print_handlings(console, [run for run in runs if run["load"] == load])
        if STOCK in systems and len(systems) > 1:
            console.print(_ratios(found, load, systems, rounds))
    p99, of_system = knees(runs)
    for system, between in of_system.items():
        console.print(
            f"{system}: p99 per token stays under {FACTOR:g} x {p99:.3f} s up to load {between}"
        )


def _absolute(found: Figures, load: float, systems: Sequence[str], rounds: Sequence[int]) -> Table:
    table = Table(title=f"load {load:g}: seconds, medians of {len(rounds)} rounds")
    table.add_column("system")
    for title in (
        *(title for title in LOWER_IS_BETTER.values()),
        "recomputed",
        "per resume",
        "sessions/s",
        "busy",
        "others",
        "preempted",
        "peak batch",
        "not done",
    ):
        table.add_column(title, justify="right")
    for system in systems:
        rows = [found[system, load, index] for index in rounds if (system, load, index) in found]
        middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        table.add_row(
            system,
            *(f"{middle[key]:.3f}" for key in LOWER_IS_BETTER),
            f"{middle['recomputed_share']:.1%}",
            f"{middle['recomputed_per_resume']:.0f}",
            f"{middle['sessions_per_second']:.2f}",
            f"{middle['busy_share']:.0%}",
            f"{middle['others']:.0%}",
            f"{middle['preemptions']:.0f}",
            f"{middle['peak_running']:.0f}",
            f"{sum(row['cut'] for row in rows):.0f}/{sum(row['counted'] for row in rows):.0f}",
        )
    return table


def _ratios(found: Figures, load: float, systems: Sequence[str], rounds: Sequence[int]) -> Table:
    table = Table(title=f"load {load:g}: ratios to {STOCK}, pair by pair (below 1 is better)")
    table.add_column("system")
    for title in LOWER_IS_BETTER.values():
        table.add_column(title, justify="right")
    for system in systems:
        pairs = [
            (found[system, load, index], found[STOCK, load, index])
            for index in rounds
            if (system, load, index) in found and (STOCK, load, index) in found
        ]
        if system == STOCK or not pairs:
            continue
        cells = [
            str(ratio([ours[key] for ours, _ in pairs], [stock[key] for _, stock in pairs]))
            for key in LOWER_IS_BETTER
        ]
        table.add_row(system, *cells)
    return table


def _print_handlings(console: Console, runs: Sequence[dict[str, Any]]) -> None:
    """Say what became of the paused KV caches, over all rounds."""
    of_system: dict[str, Counter[str]] = {}
    for run in runs:
        of_system.setdefault(run["system"], Counter()).update(handlings(run))
    for system, counts in of_system.items():
        if counts:
            pauses = ", ".join(f"{count} {name}" for name, count in counts.most_common())
            console.print(f"  {system}: {pauses}", highlight=False)
