"""Logs of scripted sessions: the tokens of a turn are the bytes of its events as JSON lines."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Literal

from pydantic import TypeAdapter

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome

_EVENTS: tuple[Any, ...] = (
    TextDelta,
    ReasoningDelta,
    CallStarted,
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    TurnEnded,
)
_KINDS: dict[str, TypeAdapter[Any]] = {each.__name__: TypeAdapter(each) for each in _EVENTS}


def tokens_of(event: Event) -> list[int]:
    """Return an event, without log probabilities, as tokens."""
    if isinstance(event, TextDelta):
        event = replace(event, logprobs=())
    kind = type(event).__name__
    return list(json.dumps([kind, _KINDS[kind].dump_python(event, mode="json")]).encode() + b"\n")


def events_of(tokens: Sequence[int]) -> list[Event]:
    """Return the events that the tokens hold as a whole."""
    lines = bytes(tokens).split(b"\n")[:-1]
    return [_KINDS[kind].validate_python(fields) for kind, fields in map(json.loads, lines)]


class ScriptedLog:
    """Writes and replays the log of one scripted session, which may have none."""

    def __init__(self, log: SessionLog | None, new_id: Callable[[], str]) -> None:
        """Create it; `new_id` makes the ids of calls where there is no log."""
        self._log = log
        self._new_id = new_id
        self._numbers = count(1)
        self._left = deque(log.turns if log is not None else ())
        self._old = self._part = 0

    def call_id(self) -> str:
        """Return the next call's id, which a replay makes again."""
        if self._log is None:
            return self._new_id()
        return f"{self._log.key}_call_{next(self._numbers)}"

    def begin(self, prompt: int) -> list[Event]:
        """Begin a turn whose messages have `prompt` tokens; return the events that are logged."""
        if self._log is None:
            return []
        if not self._left:
            self._log.begin(LoggedTurn([0] * prompt))
            self._old = 0
            return []
        logged = self._left.popleft()
        events = events_of(logged.sampled)
        self._old = len(events)
        self._part = len(logged.sampled) - sum(len(tokens_of(each)) for each in events)
        return events

    def replayed(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the events of a turn that ended in the log, and count its calls."""
        for event in events:
            if isinstance(event, CallFinished | CallMalformed):
                next(self._numbers)
            yield event

    def write(self, event: Event) -> None:
        """Write an event, unless the log has it."""
        if self._log is None:
            return
        if self._old:
            self._old -= 1
            return
        self._log.sampled(tokens_of(event)[self._part :])
        self._part = 0
        if isinstance(event, TurnEnded):
            finish: Literal["stop", "length"] = "length" if event.reason == "length" else "stop"
            paused, cached = event.reason == "call", event.cached_tokens
            self._log.end(TurnOutcome(finish, None, paused, cached, event.resume))
