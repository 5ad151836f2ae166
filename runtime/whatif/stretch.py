"""The sessions of a recording that arrived within a stretch of time, as a file to replay."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import Entry, encoded
from caesura.scheduler.records.parts import DecisionRow
from caesura.simulator.workload.records import Recorded, read_recorded

KINDS = ("forecast", "pause", "session")
"""The records that tell of sessions; see `caesura.simulator.workload.records`."""
GOES_ON = "that had neither ended nor made a call"
DIED = "that ended with their engine"
MAX_SESSIONS = 2000
"""The most sessions of a stretch: a replay should take minutes at most."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The file of a stretch's sessions, and their ids in order of arrival.

    `begin` is the first arrival in Unix seconds, and `seconds` the span of all arrivals. `left_out`
    counts the sessions that arrived in the stretch and cannot be replayed, by reason.
    """

    path: Path
    sessions: tuple[str, ...]
    begin: float
    seconds: float
    left_out: Mapping[str, int] = field(default_factory=dict)


def collect(store: Path, recording: int, since: float, until: float, path: Path) -> Stretch:
    """Write the records of the sessions that arrived between two times into the file `path`.

    A session is replayed whole, also what it did after the stretch. Raises `UsageError` if no whole
    session arrived then, or more than `MAX_SESSIONS`, or if a file cannot be read or written.
    """
    arrivals = _Arrivals(store, recording)
    wanted = arrivals.within(since, until)
    if len(wanted) > MAX_SESSIONS:
        raise UsageError(
            f"{len(wanted)} sessions arrived in this stretch, and at most {MAX_SESSIONS} can be"
            " replayed: mark a shorter one"
        )
    try:
        with path.open("w", encoding="utf-8") as file:
            for entry in catalog.entries(store, recording, KINDS):
                if _name(entry) in wanted:
                    file.write(encoded(entry) + "\n")
        found = read_recorded(path) if wanted else Recorded([], {})
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    except ValueError as error:
        raise UsageError(f"this stretch cannot be replayed: {error}") from error
    left_out = Counter(found.left_out) + arrivals.unreadable(since, until)
    if not found.sessions:
        raise UsageError(
            f"no session that has ended arrived from {since:.3f} to {until:.3f}: mark another"
            " stretch, or wait until its requests have ended"
        )
    begin = found.sessions[0].arrival
    names = tuple(session.key.partition("/")[2] for session in found.sessions)
    seconds = found.sessions[-1].arrival - begin
    return Stretch(path, names, begin, seconds, dict(left_out))


class _Arrivals:
    """When the sessions of a recording arrived: those whose records tell it, and the others."""

    def __init__(self, store: Path, recording: int) -> None:
        self._told: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._continued: set[str] = set()
        self._deaths: set[float] = set()
        of: dict[str, str] = {}
        for entry in catalog.entries(store, recording, KINDS):
            name, arrival = _name(entry), entry.get("arrival")
            of[f"{entry.get('engine', 0)}/{entry.get('request')}"] = name
            if isinstance(arrival, int | float):
                self._told[name] = min(float(arrival), self._told.get(name, math.inf))
        for entry in catalog.entries(store, recording, ("lanes", "continued", "restart")):
            if entry["kind"] == "restart":
                self._deaths.add(entry["at"])
                continue
            if entry["kind"] == "continued":
                self._continued.add(entry["lost"])
                continue
            for request, at in zip(entry["request"], entry["at"], strict=False):
                request = f"{entry.get('engine', 0)}/{request}"
                self._seen.setdefault(of.get(request, request), at)

    def within(self, since: float, until: float) -> set[str]:
        """Return the sessions that arrived between two times, and that a record describes."""
        return {name for name, arrival in self._told.items() if since <= arrival <= until}

    def unreadable(self, since: float, until: float) -> Counter[str]:
        """Return how many other sessions arrived then, by why nothing describes them.

        One that went on in the next engine is described under its request there.
        """
        found: Counter[str] = Counter()
        for name in self._seen.keys() - self._told.keys():
            request, arrived = name.partition("/")[2], self._seen[name]
            went_on = {request, request.rpartition("-")[0]} & self._continued
            if since <= arrived <= until and not went_on:
                died = any(arrived <= death for death in self._deaths)
                found[DIED if died else GOES_ON] += 1
        return found


def _name(entry: Entry) -> str:
    """Return the session's name as `caesura.simulator.workload.records` has it."""
    return f"{entry.get('engine', 0)}/{entry.get('session') or entry.get('request')}"


def renamed(entries: Iterable[Entry], stretch: Stretch) -> Iterator[Entry]:
    """Yield a simulation's entries under the ids and the times of the recorded sessions."""
    names = {f"0-{index}": name for index, name in enumerate(stretch.sessions)}
    for entry in entries:
        changed = dict(entry)
        for key in ("request", "session", "behind"):
            value = changed.get(key)
            if isinstance(value, list):
                changed[key] = [names.get(one, one) for one in value]
            elif isinstance(value, str):
                changed[key] = names.get(value, value)
        if wanted := changed.get("wanted_by"):
            changed["wanted_by"] = [[names.get(who, who), seconds] for who, seconds in wanted]
        if decisions := changed.get("decisions"):
            changed["decisions"] = [_renamed_row(row, names) for row in decisions]
        for key in ("at", "since", "until", "arrival"):
            value = changed.get(key)
            if isinstance(value, list):
                changed[key] = [one + stretch.begin for one in value]
            elif isinstance(value, int | float):
                changed[key] = value + stretch.begin
        yield changed


def _renamed_row(row: Sequence[Any], names: Mapping[str, str]) -> list[Any]:
    """Return a decision whose last field is the request that it was made for."""
    whole = DecisionRow(*row)
    return list(whole._replace(whom=names.get(whole.whom, whole.whom)))


def to_wire(stretch: Stretch) -> str:
    """Return a stretch as JSON, for another process."""
    told = (stretch.sessions, stretch.begin, stretch.seconds, dict(stretch.left_out))
    return json.dumps([str(stretch.path), *told])


def from_wire(text: str) -> Stretch:
    """Return the stretch of `to_wire`."""
    path, sessions, *told = json.loads(text)
    return Stretch(Path(path), tuple(sessions), *told)
