"""The figures as Markdown tables, before and after side by side."""

import math
import statistics
from collections.abc import Callable, Sequence

from benchmarks.page.live import Seen
from benchmarks.page.opened import Opened
from benchmarks.page.tab import Smoothness

NOTHING = "–"


def live_table(before: Seen, after: Seen) -> str:
    """Return a row for each view: the medians over the rounds, of both pages."""
    columns: tuple[tuple[str, Callable[[Smoothness], float], str], ...] = (
        ("frames/s", lambda one: one.frames_per_second, "{:.0f}"),
        ("p95 frame", lambda one: one.p95_ms, "{:.0f} ms"),
        ("longest", lambda one: one.longest_ms, "{:.0f} ms"),
        ("CPU", lambda one: 100 * one.cpu_share, "{:.0f} %"),
    )
    names = list(dict.fromkeys([*after.views, *before.views]))
    rows = [
        [name]
        + [
            pair(
                [read(one) for one in before.views.get(name, [])],
                [read(one) for one in after.views.get(name, [])],
                form,
            )
            for _, read, form in columns
        ]
        for name in names
    ]
    return table(["view", *(name for name, _, _ in columns)], rows)


def load_line(before: Seen, after: Seen) -> str:
    """Return a sentence of loading and of the heap at the end."""
    load = pair(before.load_cpu_seconds, after.load_cpu_seconds, "{:.1f} s")
    heap = pair(before.heap_mb, after.heap_mb, "{:.0f} MB")
    return f"Loading the former sessions: {load} of CPU time. Heap after all views: {heap}."


def opened_table(files: Sequence[tuple[str, Sequence[Opened], Sequence[Opened]]]) -> str:
    """Return a row for each file and figure, before and after."""
    rows: list[list[str]] = []
    for name, before, after in files:
        rows.append(
            [name, "CPU time to load", *_both(before, after, "load_cpu_seconds", "{:.2f} s")]
        )
        rows.append(["", "heap", *_both(before, after, "heap_mb", "{:.0f} MB")])
        for move in dict.fromkeys(key for one in [*after, *before] for key in one.moves):
            told = [
                _middle([one.moves[move] for one in each if move in one.moves], "{:.2f} s")
                for each in (before, after)
            ]
            rows.append(["", move, *told])
        if any(one.said for one in [*before, *after]):
            rows.append(["", "what it says", *(_said(each) for each in (before, after))])
    return table(["file", "", "before", "after"], rows)


def _both(before: Sequence[Opened], after: Sequence[Opened], name: str, form: str) -> list[str]:
    return [_middle([getattr(one, name) for one in each], form) for each in (before, after)]


def _said(openings: Sequence[Opened]) -> str:
    return next((one.said for one in openings if one.said), NOTHING)


def _middle(values: Sequence[float], form: str) -> str:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "blank" if values else NOTHING
    return form.format(statistics.median(known))


def pair(before: Sequence[float], after: Sequence[float], form: str) -> str:
    """Return `before -> after` of medians; one alone if there is only one page."""
    if not before:
        return _middle(after, form)
    return f"{_middle(before, form)} → {_middle(after, form)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
