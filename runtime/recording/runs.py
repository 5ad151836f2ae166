"""Runs with their turns, calls and pauses, and the engine's sessions, folded out of entries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from caesura.runtime.recording.entries import Entry
from caesura.runtime.tracing import conventions as names

KINDS = ("span", "opening", "pause", "session", "wait")
"""The entries that are folded; the columns say nothing of runs."""
NAMED_BY = (names.CONVERSATION_ID, names.RESPONSE_ID, names.REQUEST_ID)


@dataclass(slots=True)
class Session:
    """A session of the engine: its requests' pauses and waits, in order of time."""

    id: str
    pauses: dict[tuple[str, float], Entry] = field(default_factory=dict)
    waits: list[Entry] = field(default_factory=list)
    end: Entry | None = None

    @property
    def start(self) -> float:
        """When its first request arrived, or is first told of; Unix seconds."""
        told = [*self.pauses.values(), *([self.end] if self.end else ())]
        times = [each["arrival"] if "arrival" in each else each["at"] for each in told]
        return min(times + [each["since"] for each in self.waits], default=0.0)

    @property
    def ids(self) -> set[str]:
        """What it may be asked for by."""
        return {self.id, *(request for request, _ in self.pauses)}


@dataclass(slots=True)
class Run:
    """A run of an agent, or a chat completion: its span, and what happened in it."""

    span: Entry
    turns: list[Entry] = field(default_factory=list)
    calls: list[Entry] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    @property
    def id(self) -> str:
        """Its span's id."""
        return str(self.span["span"])

    @property
    def start(self) -> float:
        """When it began; Unix seconds."""
        return float(self.span["start"])

    @property
    def ids(self) -> set[str]:
        """What it may be asked for by."""
        found = {self.id, str(self.span["trace"])}
        for span in (self.span, *self.turns):
            attributes = span["attributes"]
            found |= {str(attributes[name]) for name in NAMED_BY if name in attributes}
        return found.union(*(session.ids for session in self.sessions))

    @property
    def pauses(self) -> list[Entry]:
        """The pauses of its requests, in order of time."""
        found = [pause for session in self.sessions for pause in session.pauses.values()]
        return sorted(found, key=lambda pause: float(pause["at"]))


class Runs:
    """Entries folded, as far as they have come."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._spans: dict[tuple[Any, Any], Entry] = {}
        self._sessions: dict[str, Session] = {}
        self._of_request: dict[str, Session] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Take one more; kinds that are not known are left alone."""
        match entry.get("kind"):
            case "span":
                self._spans[entry.get("trace"), entry.get("span")] = entry
            case "opening" | "pause":
                key = entry["request"], entry["at"]
                pauses = self._session(entry).pauses
                pauses[key] = {**pauses.get(key, {}), **entry}
            case "wait":
                self._session(entry).waits.append(entry)
            case "session":
                self._session(entry).end = entry

    def runs(self) -> list[Run]:
        """All runs, in the order in which they began."""
        found: dict[tuple[Any, Any], Run] = {}
        for (trace, span), entry in self._spans.items():
            if _operation(entry) == names.INVOKE_AGENT:
                found[trace, span] = Run(entry)
        for entry in sorted(self._spans.values(), key=lambda span: float(span["start"])):
            run = found.get((entry.get("trace"), entry.get("parent")))
            if run is None:
                continue
            if _operation(entry) == names.CHAT:
                run.turns.append(entry)
                self._join(run, entry["attributes"].get(names.REQUEST_ID))
            elif _operation(entry) == names.EXECUTE_TOOL:
                run.calls.append(entry)
        return sorted(found.values(), key=lambda run: run.start)

    def sessions(self) -> list[Session]:
        """All sessions of the engine, in the order in which they began."""
        return sorted(self._sessions.values(), key=lambda session: session.start)

    def alone(self, runs: Iterable[Run]) -> Iterator[Session]:
        """The sessions that belong to none of these runs."""
        known = {session.id for run in runs for session in run.sessions}
        yield from (session for session in self.sessions() if session.id not in known)

    def _join(self, run: Run, request: object) -> None:
        session = self._of_request.get(str(request))
        if session is not None and session not in run.sessions:
            run.sessions.append(session)

    def _session(self, entry: Entry) -> Session:
        request = str(entry["request"])
        name = str(entry.get("session") or "")
        if not name:  # a wait does not say it
            known = self._of_request.get(request)
            name = request if known is None else known.id
        session = self._sessions.setdefault(name, Session(name))
        if name != request and (guessed := self._sessions.pop(request, None)) is not None:
            session.waits += guessed.waits
        self._of_request[request] = session
        # The client's name of a request is the engine's without what stands behind the last `-`.
        self._of_request[request.rpartition("-")[0] or request] = session
        return session


def _operation(span: Entry) -> object:
    return (span.get("attributes") or {}).get(names.OPERATION)
