"""Sessions as a served engine has recorded them (`caesura serve --records FILE`).

A `pause` record tells of one segment that ended in a call, a `session` record of the last one.
Both hold `session` (its name over all its requests; without it `request` stands for it), `arrival`
(Unix seconds), `given_tokens` (the prompt, or what is new in it since the last segment) and
`decoded_tokens`; a `pause` also `tool`, `at` (Unix seconds), `outcome` and `pause_seconds`, a
`session` also `calls` and, if it is known, `most_tokens`. All other records are passed over.

Lost are the tokens themselves, and with them what sessions share; and how many tokens a client
would have allowed, but for sessions without calls. A pause that nobody came back from ends its
session. One without a `session` record, as it still ran when the file ended, ends with its last
call. One of whose `calls` some are not there is left out.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from caesura.simulator.session import Segment, Session
from caesura.simulator.workload.reading import DataError, count_of, json_lines, number_of

PLAIN = "plain"
"""The kind of a session that calls nothing; any other is of the kind of its first tool."""

UNNAMED = "tool"
"""The tool of a call whose name does not show."""

CAME_BACK = ("resumed", "followed")
"""Outcomes of a pause after which the session went on, in the same request or in another."""


@dataclass(slots=True)
class _Recorded:
    """All that is recorded of a session.

    `pauses` are (when it began, the segment before it, whether somebody came back); `calls` is -1
    while the `session` record is missing, and `last` is None if it was cut off.
    """

    arrival: float = math.inf
    pauses: list[tuple[float, Segment, bool]] = field(default_factory=list)
    last: Segment | None = None
    calls: int = -1


def read_sessions(path: Path) -> list[Session]:
    """Rebuild the sessions of a record file, by arrival; arrivals are in Unix seconds.

    Raises `DataError` for a broken file, a record without a field that is needed, or no session.
    """
    found: dict[str, _Recorded] = {}
    for line, record in json_lines(path):
        kind = record.get("kind")
        if not isinstance(kind, str):
            raise DataError(path, line, "no record: it has no kind")
        if kind in ("pause", "session"):
            name = _text(record, "session" if "session" in record else "request", path, line)
            recorded = found.setdefault(f"{record.get('engine', 0)}/{name}", _Recorded())
            recorded.arrival = min(recorded.arrival, number_of(record, "arrival", path, line))
            (_note_pause if kind == "pause" else _note_end)(recorded, record, path, line)
    sessions = [session for key, recorded in found.items() if (session := _session(key, recorded))]
    if not sessions:
        raise DataError(path, 0, "no whole session is recorded")
    return sorted(sessions, key=lambda session: session.arrival)


def _note_pause(recorded: _Recorded, record: dict[str, Any], path: Path, line: int) -> None:
    segment = Segment(
        max(1, count_of(record, "given_tokens", path, line)),
        count_of(record, "decoded_tokens", path, line, 1),
        str(record.get("tool") or UNNAMED),
        number_of(record, "pause_seconds", path, line),
    )
    came_back = _text(record, "outcome", path, line) in CAME_BACK
    recorded.pauses.append((number_of(record, "at", path, line), segment, came_back))


def _note_end(recorded: _Recorded, record: dict[str, Any], path: Path, line: int) -> None:
    recorded.calls = count_of(record, "calls", path, line)
    given = max(1, count_of(record, "given_tokens", path, line))
    decoded = count_of(record, "decoded_tokens", path, line)
    limited = recorded.calls == 0 and record.get("most_tokens") is not None
    most = count_of(record, "most_tokens", path, line) if limited else 0
    # A request that was cut off has no last segment.
    recorded.last = Segment(given, decoded, most_tokens=most) if decoded else None


def _text(record: dict[str, Any], key: str, path: Path, line: int) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(path, line, f"{key} is a text, not {value!r}")
    return value


def _session(key: str, recorded: _Recorded) -> Session | None:
    """Put a session together; None if something of it is missing."""
    pauses = sorted(recorded.pauses, key=lambda pause: pause[0])
    segments = [segment for _, segment, _ in pauses]
    if recorded.calls > len(segments):
        return None
    if recorded.last is not None and (not pauses or pauses[-1][2]):
        segments.append(recorded.last)
    if not segments:
        return None
    kind = segments[0].tool or PLAIN
    segments[-1] = replace(segments[-1], tool="", tool_seconds=0.0)
    return Session(key, kind, recorded.arrival, tuple(segments))
