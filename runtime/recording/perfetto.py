"""A recording in the JSON trace format of Chrome, which ui.perfetto.dev and chrome://tracing open.

Requests are threads, and their states are slices. Decisions about the KV cache are instants on
these threads, with the prices and the regret. Runs and tool calls come from spans, and lie side by
side on as many threads as there are at a time; arrows lead from a run's turns to its request and
its calls. Counters and steps come from the engine's columns.

Times are whole microseconds. Slices of one thread either follow or contain one another, as
readers of the format require. Readers look up names by thread id alone, so thread ids are unique
over all processes, and tracks are named at their first use.

An arrow is a pair of flow events with one id: "s" where it begins and "f" where it ends. Readers
bind each to the slice of its thread that is open at its time, so both lie within a slice, and the
end is never before the beginning.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from math import inf
from typing import Any, NamedTuple

from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import encoded
from caesura.scheduler.records import (
    GapRecord,
    LanesRecord,
    OpeningRecord,
    PauseRecord,
    Record,
    RecordError,
    RestartRecord,
    RestRecord,
    SpanRecord,
    StepsRecord,
    WaitRecord,
    parse,
)
from caesura.scheduler.records.reading import read

Event = dict[str, Any]


class Place(NamedTuple):
    """A slice that was drawn: its time in whole microseconds, and its track."""

    at: int
    end: int
    track: Event

    def near(self, at: int) -> int:
        """Return the time within the slice that is nearest to `at`."""
        return min(max(at, self.at), self.end - 1)


class Flows:
    """Collects the slices of turns, calls and requests, and draws the arrows between them."""

    def __init__(self) -> None:
        self._turns: dict[str, list[tuple[Place, str | None]]] = {}
        self._calls: dict[str, list[Place]] = {}
        self._states: dict[str, list[Place]] = {}
        self._drawn = 0

    def turn(self, run: str, place: Place, request: str | None) -> None:
        """Note a turn of a run, and the client's id of the request that decoded it."""
        if place.end > place.at:
            self._turns.setdefault(run, []).append((place, request))

    def call(self, run: str, place: Place) -> None:
        """Note a call of a tool that a run has made."""
        if place.end > place.at:
            self._calls.setdefault(run, []).append(place)

    def state(self, request: str, place: Place) -> None:
        """Note a state of a request of the engine."""
        if place.end > place.at:
            self._states.setdefault(request, []).append(place)

    def events(self) -> Iterator[Event]:
        """Yield the arrows. Each takes memory until now, since turns are told when they end."""
        requests = {name.rpartition("-")[0] or name: name for name in self._states}
        for run, told in self._turns.items():
            turns = sorted(told, key=lambda one: one[0].at)
            for place, request in turns:
                known = request if request in self._states else requests.get(request or "")
                if known is not None:
                    yield from self._to_request(place, self._states[known])
            places = [place for place, _ in turns]
            for call in self._calls.get(run, ()):
                yield from self._around(call, places)

    def _to_request(self, turn: Place, states: Sequence[Place]) -> Iterator[Event]:
        """Draw from a turn to the first state of its request that begins within it."""
        starts = [state.at for state in states]
        first = bisect_left(starts, turn.at)
        if first < len(states) and states[first].at < turn.end:
            yield from self._arrow("turn", turn, states[first].at, states[first])
        elif first and turn.at < states[first - 1].end:
            yield from self._arrow("turn", turn, turn.at, states[first - 1])

    def _around(self, call: Place, turns: Sequence[Place]) -> Iterator[Event]:
        """Draw from the turn that made a call, and to the turn that got its result."""
        starts = [turn.at for turn in turns]
        made = bisect_left(starts, call.at + 1) - 1
        if made >= 0:
            yield from self._arrow("call", turns[made], call.at, call)
        back = bisect_left(starts, call.end)
        if back < len(turns):
            yield from self._arrow("result", call, turns[back].at, turns[back])

    def _arrow(self, name: str, source: Place, at: int, target: Place) -> Iterator[Event]:
        """Draw an arrow that ends at `at`, in `target`."""
        self._drawn += 1
        same = {"name": name, "cat": "flow", "id": self._drawn}
        yield {"ph": "s", **same, "ts": source.near(at), **source.track}
        yield {"ph": "f", "bp": "e", **same, "ts": target.near(at), **target.track}


PROCESSES = {1: "Requests", 2: "Runs", 3: "Tools"}
"""Names by process id; any other process is an engine."""
FIRST_ENGINE = 10
FIRST_THREAD = 1000

WORK = {
    "tokens": {
        "decode": "decode_tokens",
        "prefill": "prefill_tokens",
        "recompute": "recompute_tokens",
    },
    "copied blocks": {
        "to the host": "saved_blocks",
        "from the host": "loaded_blocks",
        "budget": "budget_blocks",
    },
}
"""Counters of a step's work, by series and column; they return to zero after the step."""
LEVELS = {
    "requests": {"running": "running", "paused": "paused", "waiting": "waiting"},
    "blocks": {
        "running": "running_blocks",
        "paused": "paused_blocks",
        "cached": "cached_blocks",
        "free": "free_blocks",
    },
    "host blocks": {"used": "host_blocks"},
}
"""Counters of levels, which hold until the next step."""


class Tracks:
    """Assigns thread ids in order of first use, and emits a counter only when it changes."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, str], int] = {}
        self._processes: set[int] = set()
        self._values: dict[tuple[int, str], dict[str, Any]] = {}
        self._ends: dict[int, int] = {}

    def named(
        self, process: int, key: str, name: str
    ) -> tuple[dict[str, int], list[dict[str, Any]]]:
        """Return a thread's ids and, at the thread's first use, the events that name it."""
        thread = self._threads.get((process, key))
        if thread is not None:
            return {"pid": process, "tid": thread}, []
        thread = self._threads[process, key] = FIRST_THREAD + len(self._threads)
        ids = {"pid": process, "tid": thread}
        return ids, [
            *self._process(process),
            _metadata(ids, "thread_name", {"name": name}),
            _metadata(ids, "thread_sort_index", {"sort_index": thread}),
        ]

    def _process(self, process: int) -> Iterator[dict[str, Any]]:
        if process not in self._processes:
            self._processes.add(process)
            ids = {"pid": process, "tid": process}
            name = PROCESSES.get(process, f"Engine {process - FIRST_ENGINE}")
            yield _metadata(ids, "process_name", {"name": name})
            yield _metadata(ids, "process_sort_index", {"sort_index": process})

    def counters(
        self, process: int, at: int, end: int, row: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Yield the counters of a step from `at` to `end`, in microseconds."""
        if self._ends.get(process, at) < at:
            yield from self._zeros(process)
        for name, columns in (LEVELS | WORK).items():
            values = {key: row[column] for key, column in columns.items() if column in row}
            if name == "blocks" and "cached" in values and "free" in values:
                values["free"] -= values["cached"]  # cached blocks count as free too
            if values:
                yield from self._count(process, name, at, values)
        self._ends[process] = end

    def at_rest(self, process: int, at: int, blocks: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        """Yield the blocks by owner after an engine's last step."""
        before, values = self._values.get((process, "blocks"), {}), dict(blocks)
        if "cached" in before:
            cached = before["cached"]
            # Most of what is given up can still be found, where anything is.
            given_up = max(0, values["free"] - before["free"] - cached) if cached else 0
            values["cached"] = min(values["free"], cached + given_up)
            values["free"] -= values["cached"]
        if before:
            at = max(at, self._ends.get(process, at))
            yield from self._count(process, "blocks", at, {name: values[name] for name in before})

    def rest(self) -> Iterator[dict[str, Any]]:
        """Yield the zeros after each engine's last step."""
        for process in self._ends:
            yield from self._zeros(process)

    def _zeros(self, process: int) -> Iterator[dict[str, Any]]:
        for name in WORK:
            values = dict.fromkeys(self._values.get((process, name), ()), 0)
            if values:
                yield from self._count(process, name, self._ends[process], values)

    def _count(
        self, process: int, name: str, at: int, values: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        if self._values.get((process, name)) != values:
            self._values[process, name] = values
            yield {
                "ph": "C",
                "name": name,
                "ts": at,
                "pid": process,
                "tid": process,
                "args": values,
            }


class Lanes:
    """Assigns overlapping intervals to lanes; intervals come roughly in order of their ends."""

    def __init__(self) -> None:
        self._ends: dict[str, list[float]] = {}

    def free(self, group: str, at: int, end: float) -> int:
        """Return the first lane of `group` that is free from `at` on, and take it until `end`."""
        ends = self._ends.setdefault(group, [])
        for lane, last in enumerate(ends):
            if last <= at:
                ends[lane] = end
                return lane
        ends.append(end)
        return len(ends) - 1

    def leave(self, group: str, lane: int, end: int) -> None:
        """Free a lane of `group`, which was taken without a known end, from `end` on."""
        self._ends[group][lane] = end


def _metadata(ids: Mapping[str, int], name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, **ids, "args": dict(args)}


Entry = Mapping[str, Any]

REQUESTS, RUNS, TOOLS, ENGINE = 1, 2, 3, 10
"""Process ids; those of the engine's data-parallel ranks start at `ENGINE`."""
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
"""The format's colour names; a reader that does not know them colours by the slice's name."""
CLOCK_SLACK = 1000
"""Microseconds by which a state may seem to begin before its pause."""
KNOWN_BEFORE = ("request", "session", "tool", "at", "predicted_seconds", "prices", "blocks")
"""The fields of a pause's record that are known when the pause begins."""
ALTERNATIVES = ("preserve", "discard", "swap")
EVENTS_PER_PIECE = 256


def perfetto(recording: Entry, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the JSON text of a recording's trace, `EVENTS_PER_PIECE` events per piece."""
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
    """The state of the conversion: each request's state and its start, open spans, and tracks."""

    def __init__(self) -> None:
        self._tracks = Tracks()
        self._beside = Lanes()
        self._flows = Flows()
        self._state: dict[str, tuple[int, str, Event]] = {}
        self._openings: dict[str, list[tuple[int, bool]]] = {}
        self._unsettled: set[tuple[str, int]] = set()
        self._open_spans: dict[tuple[str, str], SpanRecord] = {}
        self._run_ends: dict[str, int] = {}
        self._run_lanes: dict[str, int] = {}
        self._early: dict[str, list[tuple[SpanRecord, int]]] = {}
        self._step_ends: dict[int, int] = {}
        self._last = 0

    def events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        """Yield the format's events; skip unknown and incomplete entries."""
        for entry in entries:
            with suppress(RecordError, ValueError):
                yield from self._record(parse(entry), entry)
        yield from self._close()

    def _record(self, record: Record | None, entry: Entry) -> Iterator[Event]:
        match record:
            case LanesRecord():
                return self._lanes(record)
            case OpeningRecord():
                return self._opening(record, entry)
            case PauseRecord():
                return self._pause(record, entry)
            case WaitRecord():
                return self._wait(record, entry)
            case StepsRecord():
                return self._steps(record, int(entry.get("engine", 0)))
            case RestRecord():
                return self._rest(record, int(entry.get("engine", 0)))
            case SpanRecord():
                return self._span(record)
            case GapRecord():
                return self._gap(record)
            case RestartRecord():
                return self._restart(record)
        return iter(())

    def _at(self, seconds: float) -> int:
        """Return a time in microseconds, and update the latest time."""
        at = round(seconds * 1e6)
        self._last = max(self._last, at)
        return at

    # -- requests --------------------------------------------------------------------------------

    def _lanes(self, record: LanesRecord) -> Iterator[Event]:
        for row in _rows(record):
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
        self._flows.state(about["request"], Place(at, until, track))
        return _slice(track, state, "state", at, until, about) | colour

    def _opening(self, opening: OpeningRecord, entry: Entry) -> Iterator[Event]:
        request, at = opening.request, self._at(opening.at)
        self._unsettled.add((request, at))
        insort(self._openings.setdefault(request, []), (at, opening.person))
        track, named = self._tracks.named(REQUESTS, request, f"request {request}")
        yield from named
        yield _instant(track, f"pause: {opening.tool or 'unnamed tool'}", "decision", at, entry)

    def _pause(self, pause: PauseRecord, entry: Entry) -> Iterator[Event]:
        request, at = pause.request, self._at(pause.at)
        if (request, at) not in self._unsettled:  # older files have no openings
            begun = {key: entry[key] for key in KNOWN_BEFORE if key in entry}
            yield from self._opening(read(OpeningRecord, begun), begun)
        self._unsettled.discard((request, at))
        track, _ = self._tracks.named(REQUESTS, request, "")
        for row in pause.decisions:
            prices = {name: getattr(row, name) for name in ALTERNATIVES}
            known = {name: price for name, price in prices.items() if price is not None}
            about = {"blocks": row.blocks, "why": row.why or "unknown", **known}
            when = self._at(pause.at + row.seconds)
            yield _instant(track, f"{row.act} {row.blocks} blocks", "decision", when, about)
        lasted = (pause.pause_seconds or 0.0) + pause.queue_seconds
        outcome = pause.outcome
        name = f"{outcome}: {pause.handling}" if outcome == "resumed" else outcome
        yield _instant(track, name, "decision", self._at(pause.at + lasted), entry)

    def _wait(self, wait: WaitRecord, entry: Entry) -> Iterator[Event]:
        request, until = wait.request, self._at(wait.until)
        track, named = self._tracks.named(REQUESTS, request, f"request {request}")
        yield from named
        lacked = ", ".join(entry.get("lacked") or {}) or "nothing"
        yield _instant(track, f"waited, lacking {lacked}", "wait", until, entry)

    # -- the engine ------------------------------------------------------------------------------

    def _steps(self, steps: StepsRecord, rank: int) -> Iterator[Event]:
        track, named = self._tracks.named(ENGINE + rank, "steps", "steps")
        yield from named
        for row in _rows(steps):
            # The engine may schedule a step while it still computes the one before.
            at = max(self._at(row.pop("at")), self._step_ends.get(rank, 0))
            end = self._step_ends[rank] = at + round(row.pop("seconds") * 1e6)
            self._last = max(self._last, end)
            work = [
                name for name in ("decode", "prefill", "recompute") if row.get(f"{name}_tokens")
            ]
            yield _slice(track, " + ".join(work) or "step", "step", at, end, row)
            yield from self._tracks.counters(ENGINE + rank, at, end, row)

    def _rest(self, rest: RestRecord, rank: int) -> Iterator[Event]:
        owners = ("running", "paused", "free")
        blocks = {owner: getattr(rest, f"{owner}_blocks") for owner in owners}
        return self._tracks.at_rest(ENGINE + rank, self._at(rest.at), blocks)

    def _gap(self, gap: GapRecord) -> Iterator[Event]:
        about = {"lost": gap.lost, "why": gap.why}
        track = {"pid": ENGINE, "tid": ENGINE}
        yield _instant(track, f"{gap.lost} entries lost", "gap", self._at(gap.at), about, "g")

    def _restart(self, died: RestartRecord) -> Iterator[Event]:
        at = self._at(died.at)
        for request, since in list(self._state.items()):
            if since[0] <= at:  # a later one is of the next engine
                del self._state[request]
                track, _ = self._tracks.named(REQUESTS, request, "")
                lost = (*since[:2], {**since[2], "lost_with_the_engine": True})
                yield self._state_slice(track, lost, at)
        about = {"why": died.why, "attempts": died.attempts, "seconds": died.seconds}
        track = {"pid": ENGINE, "tid": ENGINE}
        if died.state in ("", "down"):
            yield _instant(track, "the engine died", "restart", at, about, "g")
        if died.state and died.state != "down":
            after = self._at(died.at + (died.seconds or 0.0))
            yield _instant(track, f"the engine was {died.state}", "restart", after, about, "g")

    # -- runs and tools --------------------------------------------------------------------------

    def _span(self, span: SpanRecord) -> Iterator[Event]:
        at = self._at(span.start)
        if span.end is None:
            self._open_spans[span.trace, span.span] = span
            if span.attributes.get(names.OPERATION) == names.INVOKE_AGENT:
                self._begin_run(span.span, at)
            return
        self._open_spans.pop((span.trace, span.span), None)
        yield from self._ended_span(span, self._at(span.end))

    def _ended_span(self, span: SpanRecord, end: int) -> Iterator[Event]:
        operation = span.attributes.get(names.OPERATION)
        if operation == names.EXECUTE_TOOL:
            yield from self._call(span, end)
        elif operation == names.INVOKE_AGENT:
            yield from self._run(span, end)
        elif (run := span.parent or span.trace) in self._run_lanes:
            yield from self._run_track(run)[1]
            yield self._turn(run, span, end)
        else:  # the run may be told when it ends
            self._early.setdefault(run, []).append((span, end))

    def _call(self, span: SpanRecord, end: int) -> Iterator[Event]:
        at, tool = self._at(span.start), str(span.attributes.get(names.TOOL_NAME, span.name))
        lane = self._beside.free(f"tool {tool}", at, end)
        key, shown = f"{tool}/{lane}", tool if not lane else f"{tool} ({lane + 1})"
        track, named = self._tracks.named(TOOLS, key, shown)
        yield from named
        self._flows.call(span.parent or span.trace, Place(at, end, track))
        yield _slice(track, span.name, "tool", at, end, _told(span))

    def _begin_run(self, run: str, at: int) -> None:
        if run not in self._run_lanes:
            self._run_lanes[run] = self._beside.free("runs", at, inf)
            self._run_ends[run] = at

    def _run(self, span: SpanRecord, end: int) -> Iterator[Event]:
        run, at = span.span, self._at(span.start)
        self._begin_run(run, at)
        yield from self._run_track(run)[1]
        for turn, turn_end in self._early.pop(run, ()):
            yield self._turn(run, turn, turn_end)
        track, _ = self._run_track(run)
        end = max(end, self._run_ends.pop(run))
        self._beside.leave("runs", self._run_lanes.pop(run), end)
        yield _slice(track, span.name, names.INVOKE_AGENT, at, end, _told(span))

    def _run_track(self, run: str) -> tuple[Event, list[Event]]:
        lane = self._run_lanes[run]
        return self._tracks.named(RUNS, f"{lane}", f"runs ({lane + 1})" if lane else "runs")

    def _turn(self, run: str, span: SpanRecord, end: int) -> Event:
        # Turns of a run cannot overlap, but the clocks of two processes may differ.
        at = max(self._at(span.start), self._run_ends[run])
        end = self._run_ends[run] = max(at, end)
        about, (track, _) = span.attributes, self._run_track(run)
        request = about.get(names.REQUEST_ID)
        self._flows.turn(run, Place(at, end, track), request if isinstance(request, str) else None)
        return _slice(track, span.name, about.get(names.OPERATION) or "span", at, end, _told(span))

    def _close(self) -> Iterator[Event]:
        """Yield the slices of open states and spans, up to the latest time."""
        for request, since in self._state.items():
            track, _ = self._tracks.named(REQUESTS, request, "")
            yield self._state_slice(track, (*since[:2], {**since[2], "open": True}), self._last)
        for span in self._open_spans.values():
            yield from self._ended_span(replace(span, status="open"), self._last)
        for run in list(self._early):  # the entries of these runs were lost or cut off
            yield from self._orphans(run, self._early.pop(run))
        yield from self._flows.events()
        yield from self._tracks.rest()

    def _orphans(self, run: str, turns: list[tuple[SpanRecord, int]]) -> Iterator[Event]:
        turns.sort(key=lambda one: one[0].start)
        self._begin_run(run, self._at(turns[0][0].start))
        yield from self._run_track(run)[1]
        for span, end in turns:
            yield self._turn(run, span, end)
        self._beside.leave("runs", self._run_lanes.pop(run), self._run_ends.pop(run))


def _rows(record: LanesRecord | StepsRecord) -> Iterator[dict[str, Any]]:
    """Yield columns as rows; older files lack some columns."""
    columns = {each.name: getattr(record, each.name) for each in fields(record)}
    known = {name: column for name, column in columns.items() if column}
    for values in zip(*known.values(), strict=False):
        yield dict(zip(known, values, strict=True))


def _slice(track: Event, name: str, kind: str, at: int, until: int, args: Entry) -> Event:
    span = {"ph": "X", "name": name, "cat": kind, "ts": at, "dur": max(0, until - at)}
    return span | track | {"args": dict(args)}


def _instant(track: Event, name: str, kind: str, at: int, args: Entry, scope: str = "t") -> Event:
    told = {key: value for key, value in args.items() if key not in ("kind", "id", "decisions")}
    return {"ph": "i", "s": scope, "name": name, "cat": kind, "ts": at} | track | {"args": told}


def _told(span: SpanRecord) -> dict[str, Any]:
    """Return a span's fields other than its name and times."""
    entry = span.entry()
    told = {key: entry[key] for key in ("trace", "status", "message", "events") if entry[key]}
    return {**span.attributes, **told}
