"""The tables in Markdown, put between two marks of a page."""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.handling import STOCK
from benchmarks.handling.study.knee import FACTOR
from benchmarks.handling.study.report import Figures, figures_of, knees, systems_at
from benchmarks.pairs import ratio

BEGIN, END = "<!-- benchmarks.handling: begin -->", "<!-- benchmarks.handling: end -->"

COLUMNS = {
    "latency_mean": "latency mean",
    "latency_p99": "p99",
    "normalized_p99": "per token p99",
    "ttft_first_mean": "TTFT first",
    "ttft_resumed_mean": "TTFT resumed",
}


def write_page(path: Path, runs: Sequence[dict[str, Any]], args: argparse.Namespace) -> None:
    """Replace what stands between the marks of the page; raise `SystemExit` without marks."""
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{path} lacks the lines {BEGIN!r} and {END!r}; add them for the tables")
    tables = "\n".join(_tables(runs, args))
    path.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}")


def _tables(runs: Sequence[dict[str, Any]], args: argparse.Namespace) -> Iterator[str]:
    found = figures_of(runs, args.window)
    yield from _absolute(found)
    yield ""
    yield "Ratios to stock, pair by pair (median [all pairs, or their middle half from 4 on]):"
    yield ""
    yield from _ratios(found)
    p99, of_system = knees(runs)
    if of_system:
        yield ""
        yield (
            f"An idle engine's p99 of latency per decoded token is {p99:.3f} s."
            f" The p99 stays under {FACTOR:g} times that up to a load between:"
        )
        yield ""
        yield "| system | holds at | fails at | sessions/s |"
        yield "| --- | ---: | ---: | ---: |"
        for system, knee in of_system.items():
            rate = "-" if knee.holds is None else f"{knee.holds * args.rate:.2f}"
            yield f"| {system} | {_load(knee.holds)} | {_load(knee.fails)} | {rate} |"


def _load(load: float | None) -> str:
    return "-" if load is None else f"{load:g}"


def _absolute(found: Figures) -> Iterator[str]:
    titles = " | ".join(COLUMNS.values())
    yield f"| load | system | rounds | {titles} | recomputed | busy | others | cut |"
    yield f"| ---: | --- | {'---: | ' * (len(COLUMNS) + 5)}".rstrip()
    for load in sorted({load for _, load, _ in found}):
        for place, system in enumerate(systems_at(found, load)):
            rows = [row for (name, at, _), row in found.items() if (name, at) == (system, load)]
            middle = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
            cells = " | ".join(f"{middle[key]:.3g}" for key in COLUMNS)
            cut = sum(row["cut"] for row in rows)
            yield (
                f"| {'' if place else f'{load:g}'} | {system} | {len(rows)} | {cells}"
                f" | {middle['recomputed_share']:.0%} | {middle['busy_share']:.0%}"
                f" | {middle['others']:.0%} | {cut:.0f}/{sum(row['counted'] for row in rows):.0f} |"
            )


def _ratios(found: Figures) -> Iterator[str]:
    yield f"| load | system | {' | '.join(COLUMNS.values())} |"
    yield f"| ---: | --- | {'--- | ' * len(COLUMNS)}".rstrip()
    for load in sorted({load for _, load, _ in found}):
        for system in systems_at(found, load):
            pairs = [
                (row, found[STOCK, load, index])
                for (name, at, index), row in found.items()
                if (name, at) == (system, load) and (STOCK, load, index) in found
            ]
            if system != STOCK and pairs:
                cells = (
                    str(ratio([ours[key] for ours, _ in pairs], [stock[key] for _, stock in pairs]))
                    for key in COLUMNS
                )
                yield f"| {load:g} | {system} | {' | '.join(cells)} |"
