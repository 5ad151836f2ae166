"""Logs of sessions whose tokens nobody here knows: bytes of their events, as JSON lines.

A line is a pair of a kind and a value: an event's name and its fields, or a fact of the engine's.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

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
    return fact_tokens(kind, _KINDS[kind].dump_python(event, mode="json"))


def fact_tokens(kind: str, value: Any) -> list[int]:
    """Return a fact that is no event as tokens."""
    return list(json.dumps([kind, value]).encode() + b"\n")


def events_of(tokens: Sequence[int]) -> list[Event]:
    """Return the events that the tokens hold as a whole."""
    return [_KINDS[kind].validate_python(value) for kind, value in _lines(tokens) if kind in _KINDS]


def last_fact(kind: str, tokens: Sequence[int]) -> Any:
    """Return the last fact of a kind that the tokens hold as a whole; None: there is none."""
    return next((value for each, value in reversed(_lines(tokens)) if each == kind), None)


def called(events: Iterable[Event]) -> list[str]:
    """Return the ids of the calls that events tell of, in order."""
    kinds = (CallStarted, CallFinished, CallMalformed)
    return list(dict.fromkeys(each.call_id for each in events if isinstance(each, kinds)))


def _lines(tokens: Sequence[int]) -> list[tuple[str, Any]]:
    return [tuple(json.loads(line)) for line in bytes(tokens).split(b"\n")[:-1]]
