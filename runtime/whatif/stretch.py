"""The sessions of a recording that arrived within a stretch of time, as a file to replay."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import Entry, encoded
from caesura.runtime.recording.storage import reading
from caesura.simulator.workload.options import Options
from caesura.simulator.workload.sources import recorded_sessions

KINDS = ("forecast", "pause", "session")
"""The records that tell of sessions; see `caesura.simulator.workload.records`."""
MAX_SESSIONS = 2000
"""The most sessions of a stretch: a replay should take minutes at most."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The file of a stretch's sessions, and their ids in order of arrival.

    `begin` is the first arrival in Unix seconds, and `seconds` the span of all arrivals.
    """

    path: Path
    sessions: tuple[str, ...]
    begin: float
    seconds: float


def collect(store: Path, recording: int, since: float, until: float, path: Path) -> Stretch:
    """Write the records of the sessions that arrived between two times into the file `path`.

    A session is replayed whole, also what it did after the stretch. Raises `UsageError` if no whole
    session arrived then, or more than `MAX_SESSIONS`, or if a file cannot be read or written.
    """
    wanted = _arrived(reading.entries(store, recording, KINDS), since, until)
    if len(wanted) > MAX_SESSIONS:
        raise UsageError(
            f"{len(wanted)} sessions arrived in this stretch, and at most {MAX_SESSIONS} can be"
            " replayed: mark a shorter one"
        )
    try:
        with path.open("w", encoding="utf-8") as file:
            for entry in reading.entries(store, recording, KINDS):
                if _name(entry) in wanted:
                    file.write(encoded(entry) + "\n")
        sessions = recorded_sessions(Options("record"), path) if wanted else []
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"this stretch cannot be replayed: {error}") from error
    if not sessions:
        raise UsageError(
            f"no session that has ended arrived from {since:.3f} to {until:.3f}: mark another"
            " stretch, or wait until its requests have ended"
        )
    arrivals = [session.arrival for session in sessions]
    names = tuple(session.key.partition("/")[2] for session in sessions)
    return Stretch(path, names, arrivals[0], arrivals[-1] - arrivals[0])


def _arrived(entries: Iterable[Entry], since: float, until: float) -> set[str]:
    """Return the sessions whose first request arrived between two times, and that have ended."""
    arrivals: dict[str, float] = {}
    for name, arrival in _arrivals(entries):
        arrivals[name] = min(arrival, arrivals.get(name, math.inf))
    return {name for name, arrival in arrivals.items() if since <= arrival <= until}


def _arrivals(entries: Iterable[Entry]) -> Iterator[tuple[str, float]]:
    for entry in entries:
        arrival = entry.get("arrival")
        if isinstance(arrival, int | float):
            yield _name(entry), float(arrival)


def _name(entry: Entry) -> str:
    """Return the session's name as `caesura.simulator.workload.records` has it."""
    return f"{entry.get('engine', 0)}/{entry.get('session') or entry.get('request')}"


def renamed(entries: Iterable[Entry], stretch: Stretch) -> Iterator[Entry]:
    """Yield a simulation's entries under the ids and the times of the recorded sessions."""
    names = {f"0-{index}": name for index, name in enumerate(stretch.sessions)}
    for entry in entries:
        changed = dict(entry)
        for field in ("request", "session", "behind"):
            value = changed.get(field)
            if isinstance(value, list):
                changed[field] = [names.get(one, one) for one in value]
            elif isinstance(value, str):
                changed[field] = names.get(value, value)
        if wanted := changed.get("wanted_by"):
            changed["wanted_by"] = [[names.get(who, who), seconds] for who, seconds in wanted]
        for field in ("at", "since", "until", "arrival"):
            value = changed.get(field)
            if isinstance(value, list):
                changed[field] = [one + stretch.begin for one in value]
            elif isinstance(value, int | float):
                changed[field] = value + stretch.begin
        yield changed


def to_wire(stretch: Stretch) -> str:
    """Return a stretch as JSON, for another process."""
    return json.dumps([str(stretch.path), stretch.sessions, stretch.begin, stretch.seconds])


def from_wire(text: str) -> Stretch:
    """Return the stretch of `to_wire`."""
    path, sessions, begin, seconds = json.loads(text)
    return Stretch(Path(path), tuple(sessions), begin, seconds)
