"""Runs with their turns, calls and pauses, and the engine's sessions, built from entries."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import Entry
from caesura.scheduler.records import (
    ContinuedRecord,
    ForecastRecord,
    HttpRecord,
    OpeningRecord,
    PauseRecord,
    Record,
    RecordError,
    RestartRecord,
    SessionRecord,
    SpanRecord,
    WaitRecord,
    parse,
)

KINDS = (
    *("span", "forecast", "opening", "pause", "session", "wait", "http"),
    *("restart", "continued"),
)
"""The kinds of entries that this module reads; the column entries say nothing of runs."""
NAMED_BY = (names.CONVERSATION_ID, names.SESSION_ID, names.RESPONSE_ID, names.REQUEST_ID)


@dataclass(slots=True)
class Pause:
    """A pause: the records of its beginning and its end. One of the two may be missing."""

    opening: OpeningRecord | None = None
    ended: PauseRecord | None = None

    @property
    def told(self) -> OpeningRecord | PauseRecord:
        """The later record, for the fields that both records have."""
        told = self.ended or self.opening
        assert told is not None, "a pause is made of at least one record"
        return told

    def entry(self) -> Entry:
        """Return both records as one entry; the later record wins."""
        both = (each.entry() for each in (self.opening, self.ended) if each is not None)
        return {name: value for entry in both for name, value in entry.items()}


@dataclass(slots=True)
class Session:
    """A session of the engine: its forecasts, pauses and waits, each in order of time."""

    id: str
    pauses: dict[tuple[str, float], Pause] = field(default_factory=dict)
    waits: list[WaitRecord] = field(default_factory=list)
    forecasts: list[ForecastRecord] = field(default_factory=list)
    end: SessionRecord | None = None
    continued: list[ContinuedRecord] = field(default_factory=list)
    """Its requests after the first engine's death, each in the place of a lost one."""

    @property
    def start(self) -> float:
        """The first request's arrival, or the time of the first record, in Unix seconds."""
        ends = [each.ended for each in self.pauses.values() if each.ended is not None]
        arrivals = [each.arrival for each in (*ends, *([self.end] if self.end else ()))]
        times = [each.told.at for each in self.pauses.values()]
        times += [each for each in arrivals if each is not None]
        times += [each.at for each in self.forecasts]
        times += [self.end.at] if self.end is not None and self.end.arrival is None else []
        return min(times + [each.since for each in self.waits], default=0.0)

    @property
    def ids(self) -> set[str]:
        """The ids by which a user may name the session."""
        continued = (record.request for record in self.continued)
        return {self.id, *(request for request, _ in self.pauses), *continued}


@dataclass(slots=True)
class Run:
    """A run of an agent or a chat completion: its span, turns, calls and sessions."""

    span: SpanRecord
    turns: list[SpanRecord] = field(default_factory=list)
    calls: list[SpanRecord] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    http: HttpRecord | None = None
    """How its request to the server ended, if it had one and that is over."""

    @property
    def id(self) -> str:
        """The id of the run's span."""
        return self.span.span

    @property
    def start(self) -> float:
        """The start in Unix seconds."""
        return self.span.start

    @property
    def ids(self) -> set[str]:
        """The ids by which a user may name the run."""
        found = {self.id, self.span.trace}
        for span in (self.span, *self.turns):
            attributes = span.attributes
            found |= {str(attributes[name]) for name in NAMED_BY if name in attributes}
        return found.union(*(session.ids for session in self.sessions))

    @property
    def pauses(self) -> list[Pause]:
        """The pauses of the run's requests, in order of time."""
        found = [pause for session in self.sessions for pause in session.pauses.values()]
        return sorted(found, key=lambda pause: pause.told.at)


class Runs:
    """The runs and sessions of all entries that were added."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._spans: dict[tuple[str, str], SpanRecord] = {}
        self._sessions: dict[str, Session] = {}
        self._of_request: dict[str, Session] = {}
        self.http: list[HttpRecord] = []
        """The requests to the server that are over, also those that never reached the engine."""
        self.restarts: dict[float, RestartRecord] = {}
        """The deaths of the engine by their times, each with what is known last of it."""
        self._lost: dict[str, str] = {}
        for entry in entries:
            with suppress(RecordError):  # a damaged entry in the file
                self.add(parse(entry))

    def add(self, record: Record | None) -> None:
        """Add one record; ignore unknown kinds."""
        match record:
            case SpanRecord():
                self._spans[record.trace, record.span] = record
            case ForecastRecord():
                self._session(record.request, record.session).forecasts.append(record)
            case OpeningRecord():
                self._pause(record).opening = record
            case PauseRecord():
                self._pause(record).ended = record
            case WaitRecord():
                self._session(record.request).waits.append(record)
            case HttpRecord():
                self.http.append(record)
            case SessionRecord():
                self._session(record.request, record.session).end = record
            case RestartRecord():
                self.restarts[record.at] = record
            case ContinuedRecord():
                self._lost[record.request] = record.lost
                self._session(record.request).continued.append(record)

    def _pause(self, record: OpeningRecord | PauseRecord) -> Pause:
        pauses = self._session(record.request, record.session).pauses
        return pauses.setdefault((record.request, record.at), Pause())

    def runs(self) -> list[Run]:
        """Return all runs, in the order in which they began."""
        found: dict[tuple[str, str | None], Run] = {}
        answers = {record.answer: record for record in self.http if record.answer}
        for key, span in self._spans.items():
            if span.attributes.get(names.OPERATION) == names.INVOKE_AGENT:
                answer = answers.get(str(span.attributes.get(names.RESPONSE_ID)))
                found[key] = Run(span, http=answer)
        for span in sorted(self._spans.values(), key=lambda span: span.start):
            run = found.get((span.trace, span.parent))
            if run is None:
                continue
            operation = span.attributes.get(names.OPERATION)
            if operation == names.CHAT:
                run.turns.append(span)
                self._join(run, span.attributes.get(names.REQUEST_ID))
            elif operation == names.EXECUTE_TOOL:
                run.calls.append(span)
        return sorted(found.values(), key=lambda run: run.start)

    def sessions(self) -> list[Session]:
        """Return all sessions of the engine, in the order in which they began."""
        return sorted(self._sessions.values(), key=lambda session: session.start)

    def alone(self, runs: Iterable[Run]) -> Iterator[Session]:
        """Yield the sessions that belong to none of these runs."""
        known = {session.id for run in runs for session in run.sessions}
        yield from (session for session in self.sessions() if session.id not in known)

    def _join(self, run: Run, request: object) -> None:
        session = self._of_request.get(str(request))
        if session is not None and session not in run.sessions:
            run.sessions.append(session)

    def _session(self, request: str, name: str = "") -> Session:
        """Return the session of a request; a wait record does not name its session.

        A request that goes on for a lost one belongs to that one's session, whatever its name.
        """
        lost = self._lost.get(request) or self._lost.get(request.rpartition("-")[0])
        if lost is not None:
            name = self._session(lost).id
        if not name:
            known = self._of_request.get(request)
            name = request if known is None else known.id
        session = self._sessions.setdefault(name, Session(name))
        if name != request and (guessed := self._sessions.pop(request, None)) is not None:
            session.waits += guessed.waits
            session.forecasts += guessed.forecasts
        self._of_request[request] = session
        # The engine's id of a request is the client's id, a `-` and a suffix.
        self._of_request[request.rpartition("-")[0] or request] = session
        return session
