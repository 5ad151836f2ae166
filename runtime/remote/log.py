"""The log of a session with a server: the events that were heard, and the ids of the responses.

The server has the tokens. So another process can hear a turn again, and go on from its response.
"""

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Literal

from caesura.intercept.calls.events import CallFinished, CallMalformed, Event, TurnEnded
from caesura.runtime.event_log import called, events_of, fact_tokens, last_fact, tokens_of
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome

_RESPONSE = "response"
"""The kind of the fact that holds a response's id."""


@dataclass(frozen=True, slots=True)
class LoggedEvents:
    """What a log holds of a turn; nothing for a new one."""

    events: list[Event] = field(default_factory=list)
    response: str | None = None
    """The server's response, if it has begun."""
    previous: str | None = None
    """The response before, if the log tells."""

    @property
    def is_whole(self) -> bool:
        """Whether the turn ended."""
        return bool(self.events) and isinstance(self.events[-1], TurnEnded)

    @property
    def calls(self) -> list[str]:
        """The ids of the calls that were heard as a whole."""
        ended = [each for each in self.events if isinstance(each, CallFinished | CallMalformed)]
        return called(ended)

    async def replayed(self, taken: set[str]) -> AsyncGenerator[Event, None]:
        """Yield the events; a turn that was lost ends behind its last whole call."""
        taken.update(called(self.events))
        events = self.events
        if not self.is_whole:
            last = max(at for at, each in enumerate(events) if _ends_call(each))
            events = [*events[: last + 1], TurnEnded("call", 0, 0, 0)]
        for event in events:
            yield event


class RemoteLog:
    """Writes and replays the log of one session, which may have none."""

    def __init__(self, log: SessionLog | None) -> None:
        self._log = log
        self._left = deque(log.turns if log is not None else ())
        self._old = 0
        self._response: str | None = None
        self._waiting: list[int] = []

    def begin(self) -> LoggedEvents:
        """Begin a turn; return what the log has of it."""
        self._old, self._response, self._waiting = 0, None, []
        if self._log is None:
            return LoggedEvents()
        if not self._left:
            self._log.begin(LoggedTurn([]))
            return LoggedEvents()
        turn = self._left.popleft()
        events = events_of(turn.sampled)
        self._old, self._response = len(events), last_fact(_RESPONSE, turn.sampled)
        return LoggedEvents(events, self._response, last_fact(_RESPONSE, turn.appended))

    def responds(self, response_id: str | None) -> None:
        """Write the id of the turn's response, once."""
        if self._log is not None and response_id not in (None, self._response):
            self._response = response_id
            self._log.sampled(fact_tokens(_RESPONSE, response_id))

    def write(self, event: Event) -> None:
        """Write an event, unless the log has it.

        A turn is written up to its last whole call: a text alone would be written anew.
        """
        if self._log is None:
            return
        if self._old:
            self._old -= 1
            return
        self._waiting += tokens_of(event)
        if not _ends_call(event) and not isinstance(event, TurnEnded):
            return
        self._log.sampled(self._waiting)
        self._waiting = []
        if isinstance(event, TurnEnded):
            finish: Literal["stop", "length"] = "length" if event.reason == "length" else "stop"
            self._log.end(TurnOutcome(finish, None, event.reason == "call", event.cached_tokens))


def _ends_call(event: Event) -> bool:
    return isinstance(event, CallFinished | CallMalformed)
