"""A time window of a recording, with the states and spans that are open when it begins."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from caesura.runtime.recording.entries import Entry

LANE = ("request", "state", "at", "blocks", "host", "tokens")
PLANNED = ("plan", "stage", "replica", "progress")
"""Kinds of a planned run. What goes on in a window is told by all of them before, and they are few.
"""


def times_of(entry: Entry) -> tuple[float, float] | None:
    """Return the start and end of what an entry reports, in seconds; None if it has no times."""
    with suppress(TypeError, KeyError):  # a damaged entry in the file
        times = _told(entry)
        if times is not None and all(isinstance(each, int | float) for each in times):
            return times
    return None


def _told(entry: Entry) -> tuple[float, float] | None:
    at = entry.get("at")
    if isinstance(at, list):
        return (at[0], at[-1]) if at else None
    match entry.get("kind"):
        case "span":
            start = entry.get("start")
            last = entry.get("end")
            return None if start is None else (start, start if last is None else last)
        case "wait":
            return entry["since"], entry["until"]
        case "pause" if at is not None:
            return at, at + (entry.get("pause_seconds") or 0) + (entry.get("queue_seconds") or 0)
    return None if at is None else (at, at)


def cut(entries: Iterable[Entry], since: float, until: float) -> Iterator[Entry]:
    """Yield the entries between two times, and those that are open when the window begins.

    An open entry comes just before the next entry of the same request or span. If none follows,
    it comes at the end.
    """
    window = _Window(since, until)
    for entry in entries:
        yield from window.take(entry)
    yield from window.left()


class _Window:
    """The states and entries that began before the window and are still open."""

    def __init__(self, since: float, until: float) -> None:
        self._since = since
        self._until = until
        self._lanes: dict[str, tuple[Any, ...]] = {}
        self._begun: dict[tuple[Any, ...], Entry] = {}

    def take(self, entry: Entry) -> Iterator[Entry]:
        if entry.get("kind") == "lanes":
            yield from self._rows(entry)
            return
        times = times_of(entry)
        if times is None:
            yield entry
            return
        first, last = times
        if entry.get("kind") in PLANNED:
            if first <= self._until:
                yield entry
            return
        key = _key(entry)
        began = self._begun.pop(key, None) if key else None
        if first > self._until:
            return
        if key and first < self._since and _is_open(entry):
            self._begun[key] = entry
        elif last >= self._since:
            if began is not None and began["kind"] != entry["kind"]:
                yield began
            yield entry

    def left(self) -> Iterator[Entry]:
        """Yield the entries that are still open."""
        if self._lanes:
            yield _columns(self._lanes.values())
        yield from self._begun.values()

    def _rows(self, entry: Entry) -> Iterator[Entry]:
        """Yield the rows in the window; before a request's first row, its state at the start."""
        kept: list[tuple[Any, ...]] = []
        columns = [entry.get(name) for name in LANE]
        known = (column if isinstance(column, list) else () for column in columns)
        for row in zip(*known, strict=False):
            request, state, at = str(row[0]), *row[1:3]
            if not isinstance(at, int | float) or at > self._until:
                continue
            before = self._lanes.pop(request, None)
            if at >= self._since:
                kept += [row] if before is None else [before, row]
            elif state != "ended":
                self._lanes[request] = row
        if kept:
            yield {**entry, **_columns(kept)}


def _columns(rows: Iterable[tuple[Any, ...]]) -> Entry:
    columns = zip(*rows, strict=True)
    return {"kind": "lanes", **{name: list(each) for name, each in zip(LANE, columns, strict=True)}}


def _key(entry: Entry) -> tuple[Any, ...] | None:
    """Return a key that the opening entry and the ending entry of a span or pause share."""
    match entry.get("kind"):
        case "span":
            return "span", str(entry.get("trace")), str(entry.get("span"))
        case "opening" | "pause":
            return "pause", str(entry.get("request")), str(entry.get("at"))
    return None


def _is_open(entry: Entry) -> bool:
    return entry["kind"] == "opening" or (entry["kind"] == "span" and entry.get("end") is None)
