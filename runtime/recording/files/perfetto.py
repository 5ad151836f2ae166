"""A recording in the JSON trace format of Chrome, which ui.perfetto.dev and chrome://tracing open.

Requests are threads whose slices are states; what was decided about their KV cache stands on them
as instants, with the prices and the regret. Runs and tool calls come from spans, counters and
steps from the engine's columns. Times are whole microseconds, and slices of one thread either
follow or hold one another, which readers of the format demand. Thread ids are unique over all
processes, since names are looked up by them alone.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from caesura.runtime.recording.entries import encoded
from caesura.runtime.recording.files.perfetto_tracks import Lanes, Tracks
from caesura.runtime.tracing import conventions as names

Entry = Mapping[str, Any]
Event = dict[str, Any]

REQUESTS, RUNS, TOOLS, ENGINE = 1, 2, 3, 10
"""Process ids; the engine's data-parallel ranks count on from `ENGINE`."""
COLOURS = {
    "waiting": "thread_state_runnable",
    "loading": "rail_load",
    "prefill": "thread_state_running",
    "recompute": "terrible",
    "decode": "good",
    "paused": "grey",
    "offloaded": "thread_state_iowait",
    "dropped": "bad",
}
"""The format's own colour names; readers that do not know them colour by the slice's name."""
CLOCK_SLACK = 1000
"""Microseconds by which a state may seem to begin before the pause that it belongs to."""
KNOWN_BEFORE = ("request", "session", "tool", "at", "predicted_seconds", "prices", "blocks")
"""Of a pause's record, what was known when it began."""
EVENTS_PER_PIECE = 256


def perfetto(recording: Entry, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the JSON text of a recording's trace, a few hundred events to a piece."""
    facts = {key: value for key, value in recording.items() if key != "about"}
    facts |= dict(recording.get("about") or {})
    head = encoded({"displayTimeUnit": "ms", "otherData": facts})
    yield head[:-1] + ',"traceEvents":[\n'
    pending: list[str] = []
    between = ""
    for event in Trace().events(entries):
        pending.append(encoded(event))
        if len(pending) == EVENTS_PER_PIECE:
            yield between + ",\n".join(pending)
            pending, between = [], ",\n"
    yield (between if pending else "") + ",\n".join(pending) + "\n]}\n"


class Trace:
    """What has been read so far: who is in which state since when, and which track is whose."""

    def __init__(self) -> None:
        self._tracks = Tracks()
        self._tools = Lanes()
        self._state: dict[str, tuple[int, str, Event]] = {}
        self._openings: dict[str, list[tuple[int, bool]]] = {}
        self._unsettled: set[tuple[str, int]] = set()
        self._open_spans: dict[tuple[str, str], Entry] = {}
        self._run_ends: dict[str, int] = {}
        self._step_ends: dict[int, int] = {}
        self._last = 0

    def events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        """Yield the format's events; entries that are unknown or not whole are left out."""
        readers = {
            "lanes": self._lanes,
            "opening": self._opening,
            "pause": self._pause,
            "wait": self._wait,
            "steps": self._steps,
            "span": self._span,
            "gap": self._gap,
        }
        for entry in entries:
            reader = readers.get(entry.get("kind", ""))
            if reader is not None:
                with suppress(KeyError, TypeError, ValueError):
                    yield from reader(entry)
        yield from self._close()

    def _at(self, seconds: float) -> int:
        """Return a time in microseconds, and remember the latest."""
        at = round(seconds * 1e6)
        self._last = max(self._last, at)
        return at

    # -- requests --------------------------------------------------------------------------------

    def _lanes(self, entry: Entry) -> Iterator[Event]:
        for row in _rows(entry, ("request", "state", "at"), ("blocks", "host", "tokens")):
            request, state, at = row["request"], row["state"], self._at(row["at"])
            track, named = self._tracks.named(REQUESTS, request, f"request {request}")
            yield from named
            before = self._state.pop(request, None)
            if before is not None:
                yield self._state_slice(track, before, at)
                at = max(at, before[0])
            if state != "ended":
                about = {key: value for key, value in row.items() if key not in ("state", "at")}
                self._state[request] = (at, state, about)

    def _state_slice(self, track: Event, since: tuple[int, str, Event], until: int) -> Event:
        at, state, about = since
        openings = self._openings.get(about["request"], [])
        last = bisect_right(openings, (at + CLOCK_SLACK, True)) - 1
        if state in ("paused", "offloaded", "dropped") and last >= 0 and openings[last][1]:
            about = {**about, "waits_for": "person"}
        colour = {"cname": COLOURS[state]} if state in COLOURS else {}
        return _slice(track, state, "state", at, until, about) | colour

    def _opening(self, entry: Entry) -> Iterator[Event]:
        request, at = entry["request"], self._at(entry["at"])
        self._unsettled.add((request, at))
        insort(self._openings.setdefault(request, []), (at, bool(entry.get("person"))))
        track, named = self._tracks.named(REQUESTS, request, f"request {request}")
        yield from named
        yield _instant(
            track, f"pause: {entry.get('tool') or 'unnamed tool'}", "decision", at, entry
        )

    def _pause(self, entry: Entry) -> Iterator[Event]:
        request, at = entry["request"], self._at(entry["at"])
        if (request, at) not in self._unsettled:  # older files have no openings
            yield from self._opening({key: entry[key] for key in KNOWN_BEFORE if key in entry})
        self._unsettled.discard((request, at))
        track, _ = self._tracks.named(REQUESTS, request, "")
        for row in entry.get("decisions") or ():
            seconds, action, blocks, *why = row
            about = {"blocks": blocks, "why": why[0] if why else "unknown"}
            when = self._at(entry["at"] + seconds)
            yield _instant(track, f"{action} {blocks} blocks", "decision", when, about)
        lasted = (entry.get("pause_seconds") or 0.0) + (entry.get("queue_seconds") or 0.0)
        outcome, handling = entry.get("outcome", "ended"), entry.get("handling", "none")
        name = f"{outcome}: {handling}" if outcome == "resumed" else outcome
        yield _instant(track, name, "decision", self._at(entry["at"] + lasted), entry)

    def _wait(self, entry: Entry) -> Iterator[Event]:
        request, until = entry["request"], self._at(entry["until"])
        track, named = self._tracks.named(REQUESTS, request, f"request {request}")
        yield from named
        lacked = ", ".join(entry.get("lacked") or {}) or "nothing"
        yield _instant(track, f"waited, lacking {lacked}", "wait", until, entry)

    # -- the engine ------------------------------------------------------------------------------

    def _steps(self, entry: Entry) -> Iterator[Event]:
        rank = entry.get("engine", 0)
        track, named = self._tracks.named(ENGINE + rank, "steps", "steps")
        yield from named
        counts = [key for key in entry if key not in ("kind", "engine", "id", "at", "seconds")]
        for row in _rows(entry, ("at", "seconds"), counts):
            # The engine may schedule a step while the one before is still being computed.
            at = max(self._at(row.pop("at")), self._step_ends.get(rank, 0))
            end = self._step_ends[rank] = at + round(row.pop("seconds") * 1e6)
            self._last = max(self._last, end)
            work = [
                name for name in ("decode", "prefill", "recompute") if row.get(f"{name}_tokens")
            ]
            yield _slice(track, " + ".join(work) or "step", "step", at, end, row)
            yield from self._tracks.counters(ENGINE + rank, at, end, row)

    def _gap(self, entry: Entry) -> Iterator[Event]:
        about = {"lost": entry.get("lost"), "why": entry.get("why")}
        name = f"{about['lost']} entries lost"
        yield _instant(
            {"pid": ENGINE, "tid": ENGINE}, name, "gap", self._at(entry["at"]), about, "g"
        )

    # -- runs and tools --------------------------------------------------------------------------

    def _span(self, entry: Entry) -> Iterator[Event]:
        key = (entry["trace"], entry["span"])
        self._at(entry["start"])
        if entry.get("end") is None:
            self._open_spans[key] = entry
            self._run_ends[entry["span"]] = self._at(entry["start"])
            return
        self._open_spans.pop(key, None)
        yield from self._ended_span(entry, self._at(entry["end"]))

    def _ended_span(self, entry: Entry, end: int) -> Iterator[Event]:
        at, about = self._at(entry["start"]), _attributes(entry)
        operation, name = about.get(names.OPERATION), str(entry.get("name"))
        if operation == names.EXECUTE_TOOL:
            tool = str(about.get(names.TOOL_NAME, name))
            self._run_ends.pop(entry["span"], None)
            lane = self._tools.free(tool, at, end)
            key, shown = f"{tool}/{lane}", tool if not lane else f"{tool} ({lane + 1})"
            track, named = self._tracks.named(TOOLS, key, shown)
            yield from named
            yield _slice(track, name, "tool", at, end, _told(entry))
            return
        run = (
            entry["span"]
            if operation == names.INVOKE_AGENT
            else entry.get("parent") or entry["trace"]
        )
        track, named = self._tracks.named(RUNS, run, f"run {run[:8]}")
        yield from named
        if operation == names.INVOKE_AGENT:
            end = max(end, self._run_ends.pop(run, 0))
        else:  # turns of a run follow one another; clocks of two processes may say otherwise
            at = max(at, self._run_ends.get(run, 0))
            end = self._run_ends[run] = max(at, end)
        yield _slice(track, name, operation or "span", at, end, _told(entry))

    def _close(self) -> Iterator[Event]:
        """Draw what is still under way up to the last time that was seen."""
        for request, since in self._state.items():
            track, _ = self._tracks.named(REQUESTS, request, "")
            yield self._state_slice(track, (*since[:2], {**since[2], "open": True}), self._last)
        for entry in self._open_spans.values():
            yield from self._ended_span({**entry, "status": "open"}, self._last)
        yield from self._tracks.rest()


def _rows(entry: Entry, needed: Iterable[str], extra: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Turn columns into rows; older files lack some of the extra ones."""
    known = [*needed, *(name for name in extra if isinstance(entry.get(name), list))]
    for values in zip(*(entry[name] for name in known), strict=False):
        yield dict(zip(known, values, strict=True))


def _slice(track: Event, name: str, kind: str, at: int, until: int, args: Entry) -> Event:
    span = {"ph": "X", "name": name, "cat": kind, "ts": at, "dur": max(0, until - at)}
    return span | track | {"args": dict(args)}


def _instant(track: Event, name: str, kind: str, at: int, args: Entry, scope: str = "t") -> Event:
    told = {key: value for key, value in args.items() if key not in ("kind", "id", "decisions")}
    return {"ph": "i", "s": scope, "name": name, "cat": kind, "ts": at} | track | {"args": told}


def _told(entry: Entry) -> dict[str, Any]:
    """Return what a span says beside its name and times."""
    told = {key: entry[key] for key in ("trace", "status", "message", "events") if entry.get(key)}
    return {**_attributes(entry), **told}


def _attributes(entry: Entry) -> Entry:
    found = entry.get("attributes")
    return found if isinstance(found, Mapping) else {}
