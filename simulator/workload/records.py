"""Read the sessions that a served engine has recorded (`caesura serve --records FILE`).

A `pause` record describes a segment that ended in a call, a `session` record the last segment
(`caesura.scheduler.records` has their fields). A `forecast` record says what was known of a session
behind its last call: the hashed words of the call, and whether its result was an error. Other kinds
are ignored. Without a `session` field the request's id stands for the session.

Records do not hold the tokens themselves, so the prefixes that sessions share are unknown. A
client's token limit is known only for sessions without calls. A pause that was never resumed ends
its session. A session without a `session` record was still running when the file ended, and ends
with its last call. A session that lacks some of its calls is left out, as one that decoded nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from caesura.scheduler.predict.facts import NO_WORDS, CallWords
from caesura.scheduler.records import (
    ForecastRecord,
    PauseRecord,
    RecordError,
    SessionRecord,
    parse,
)
from caesura.simulator.session import Segment, Session
from caesura.simulator.workload.reading import DataError, json_lines

PLAIN = "plain"
"""The kind of a session without calls; the kind of any other session is its first tool."""

UNNAMED = "tool"
"""The tool of a call with an unknown name."""

SEGMENT = {"arrival": 0, "given_tokens": 0, "decoded_tokens": 0}
NEEDED: dict[str, dict[str, int]] = {
    "pause": {**SEGMENT, "decoded_tokens": 1, "at": 0, "pause_seconds": 0},
    "session": {**SEGMENT, "calls": 0},
    "forecast": {"calls": 0},
}
"""The fields that a replay needs of each kind, with their minimum."""

CAME_BACK = ("resumed", "followed")
"""Outcomes of a pause after which the session continued, in the same request or in another."""


@dataclass(slots=True)
class _Recorded:
    """The records of a session.

    `pauses` are (its beginning, the segment before it, whether the session continued). `calls` is
    -1 until the `session` record is read. `last` is None if the session was cut off. `known` are
    the records of what was known of it, by the number of calls.
    """

    arrival: float = math.inf
    pauses: list[tuple[float, Segment, bool]] = field(default_factory=list)
    last: Segment | None = None
    calls: int = -1
    known: dict[int, ForecastRecord] = field(default_factory=dict)


LACKS_CALLS = "of which not all calls are recorded"
DECODED_NOTHING = "that had decoded no token"


@dataclass(frozen=True, slots=True)
class Recorded:
    """Sessions in order of arrival, and how many were left out, by reason."""

    sessions: list[Session]
    left_out: Mapping[str, int]


def read_sessions(path: Path) -> list[Session]:
    """Return the sessions of a record file in order of arrival; arrivals are Unix seconds.

    Raises `DataError` for a broken file, a record that lacks a needed field, or no session.
    """
    return read_recorded(path).sessions


def read_recorded(path: Path) -> Recorded:
    """Return the sessions of a record file, and the count of those left out; raises `DataError`."""
    found: dict[str, _Recorded] = {}
    for line, entry in json_lines(path):
        record = _record(entry, path, line)
        if record is None:
            continue
        name = f"{entry.get('engine', 0)}/{record.session or record.request}"
        recorded = found.setdefault(name, _Recorded())
        if isinstance(record, ForecastRecord):
            recorded.known[record.calls] = record
            continue
        assert record.arrival is not None
        recorded.arrival = min(recorded.arrival, record.arrival)
        if isinstance(record, PauseRecord):
            _note_pause(recorded, record)
        else:
            _note_end(recorded, record)
    sessions: list[Session] = []
    left_out: Counter[str] = Counter()
    for key, recorded in found.items():
        made = _session(key, recorded)
        if isinstance(made, Session):
            sessions.append(made)
        elif recorded.arrival < math.inf:  # else it had only arrived when the file ended
            left_out[made] += 1
    if not sessions:
        raise DataError(path, 0, "no whole session is recorded")
    return Recorded(sorted(sessions, key=lambda session: session.arrival), left_out)


def _record(
    entry: dict[str, Any], path: Path, line: int
) -> ForecastRecord | PauseRecord | SessionRecord | None:
    """Return the record of a line; None for a kind that does not describe sessions.

    Raises `DataError` for a broken record, and for one that lacks a field that a replay needs.
    """
    if not isinstance(entry.get("kind"), str):
        raise DataError(path, line, "this is not a record: it has no kind")
    needed = NEEDED.get(entry["kind"])
    if needed is None:
        return None
    try:
        record = parse(entry)
    except RecordError as error:
        raise DataError(path, line, str(error)) from error
    assert isinstance(record, ForecastRecord | PauseRecord | SessionRecord)
    for name, least in needed.items():
        value = getattr(record, name) if name in entry else None
        if value is None or not least <= value < math.inf:
            raise DataError(path, line, f"{name} must be a number >= {least}, got {value!r}")
    return record


def _note_pause(recorded: _Recorded, record: PauseRecord) -> None:
    assert record.pause_seconds is not None
    segment = Segment(
        max(1, record.given_tokens),
        record.decoded_tokens,
        record.tool or UNNAMED,
        record.pause_seconds,
    )
    recorded.pauses.append((record.at, segment, record.outcome in CAME_BACK))


def _note_end(recorded: _Recorded, record: SessionRecord) -> None:
    recorded.calls = record.calls
    given, decoded = max(1, record.given_tokens), record.decoded_tokens
    # A limit is the client's only if one request was the whole session.
    most = (record.most_tokens or 0) if record.calls == 0 else 0
    # A request that was cut off has no last segment.
    recorded.last = Segment(given, decoded, most_tokens=most) if decoded else None


def _session(key: str, recorded: _Recorded) -> Session | str:
    """Return the session of these records, or why there is none."""
    pauses = sorted(recorded.pauses, key=lambda pause: pause[0])
    segments = [_with_contents(s, calls, recorded) for calls, (_, s, _) in enumerate(pauses)]
    if recorded.calls > len(segments):
        return LACKS_CALLS
    if recorded.last is not None and (not pauses or pauses[-1][2]):
        segments.append(recorded.last)
    if not segments:
        return DECODED_NOTHING
    kind = segments[0].tool or PLAIN
    segments[-1] = replace(segments[-1], tool="", tool_seconds=0.0, words=NO_WORDS, failed=False)
    return Session(key, kind, recorded.arrival, tuple(segments))


def _with_contents(segment: Segment, calls: int, recorded: _Recorded) -> Segment:
    """Return the segment before call `calls` with the call's words, if they were recorded."""
    behind = recorded.known.get(calls + 1)
    if behind is None:
        return segment
    features, before = behind.features, recorded.known.get(calls)
    counted = {} if before is None else _heads(before)
    heads = [head for head, made in _heads(behind).items() if made > counted.get(head, 0)]
    words = CallWords(tuple(features.words), tuple(heads))
    return replace(segment, words=words, failed=features.last_error)


def _heads(record: ForecastRecord) -> dict[int, int]:
    return dict(zip(record.features.heads, record.features.head_calls, strict=False))
