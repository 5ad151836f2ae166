"""Tables of what was real, what was simulated, and their ratios."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.evidence.tables import Table as Told
from benchmarks.pairs import ratio

FIGURES = {
    "latency_mean": "latency, mean",
    "latency_p99": "latency, p99",
    "ttft_first_mean": "first TTFT, mean",
    "ttft_resumed_mean": "resumed TTFT, mean",
}


def print_report(console: Console, runs: Sequence[dict[str, Any]]) -> None:
    """Print what there is, load by load."""
    for load in sorted({run["load"] for run in runs}):
        chosen = [run for run in runs if run["load"] == load]
        console.print(_table(load, chosen))
        for run in chosen:
            _print_run(console, run)


def tables(runs: Sequence[dict[str, Any]]) -> list[Told]:
    """Return the table of each load as data."""
    loads = sorted({run["load"] for run in runs})
    by_load = ((load, [run for run in runs if run["load"] == load]) for load in loads)
    return [Told.drawn(_table(load, chosen)) for load, chosen in by_load]


def _table(load: float, runs: Sequence[dict[str, Any]]) -> Table:
    sessions = sum(run["counted"] for run in runs)
    title = f"load {load:g}: {len(runs)} rounds, {sessions} sessions"
    table = Table(title=f"{title}; simulated / real, median \\[spread] over rounds")
    table.add_column("steps' times from")
    for name in (*FIGURES.values(), "same events", "same order"):
        table.add_column(name, justify="right")
    middle = (f"{median(run['real'][key] for run in runs):.3f} s" for key in FIGURES)
    table.add_row("(real)", *middle, "", "")
    for costs in runs[0]["simulated"]:
        rows = [run["simulated"][costs] for run in runs]
        ratios = (
            str(ratio([row[key] for row in rows], [run["real"][key] for run in runs]))
            for key in FIGURES
        )
        same = sum(row["same_events"] for row in rows)
        order = median(row["same_order"] for row in rows)
        table.add_row(costs, *ratios, f"{same}/{sessions}", f"{order:.1%}")
    return table


def _print_run(console: Console, run: dict[str, Any]) -> None:
    """Say on what machine it ran, and what became of paused KV."""
    machine = run["machine"]
    before, after = machine["load_average"]
    console.print(
        f"  round {run['round'] + 1}: load average {before:.1f} to {after:.1f},"
        f" engine busy {machine['busy']:.0%} of {machine['seconds']:.0f} s, {machine['steps']}"
        f" steps, pace uneven by {machine['unevenness']:.0%}, a step's error"
        f" {machine['step_error']:.0%}, overhead {1000 * machine['overhead']:.1f} ms a segment,"
        f" {1000 * machine['gap']:.2f} ms between steps, {run['cut']} not done",
        highlight=False,
    )
    kept = {"real": run["real"], **run["simulated"]}
    told = "; ".join(f"{name}: {_counts(row['handlings'])}" for name, row in kept.items())
    console.print(f"    came back from {told}", highlight=False)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
