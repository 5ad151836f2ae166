"""From what parsers say about calls to events in their order."""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallEvent,
    CallFinished,
    CallMalformed,
    CallStarted,
)

_DECODER = json.JSONDecoder()
_MOST_LOOKS = 16

UNREADABLE = "the call cannot be read"
UNCLOSED = "the turn ended before the call was closed, so it was not run"


@dataclass(frozen=True, slots=True)
class Piece:
    """What a streaming parser has seen of a call: its index, its name once, more arguments."""

    index: int
    name: str
    arguments: str


class Found(NamedTuple):
    """A call as the last word on it has it; `arguments` is the JSON text of an object."""

    name: str
    arguments: str


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str = ""
    streamed: list[str] = field(default_factory=list)


def new_call_id() -> str:
    """Nine alphanumerical characters, which the strictest chat templates (Mistral's) ask for."""
    return uuid.uuid4().hex[:9]


def name_in(text: str, named: str) -> str | None:
    """Return the tool's name in the text of a call, by the format's pattern `named`."""
    found = re.search(named, text)
    return next((name for name in found.groups() if name), None) if found else None


def json_of(text: str) -> Any:
    """Return what a JSON text says, None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class CallEvents:
    """The calls of one stretch of text: announced as they come, settled when it has ended."""

    def __init__(self, shape: str, verbatim: bool) -> None:
        """`shape` is told for a malformed call; `verbatim`: arguments stand as JSON in the text."""
        self._shape = shape
        self._verbatim = verbatim
        self._calls: list[_Call] = []

    @property
    def announced(self) -> bool:
        """Whether there has been any event."""
        return bool(self._calls)

    def announce(self, pieces: Iterable[Piece]) -> Iterator[CallEvent]:
        """Pass on what a streaming parser says."""
        for piece in pieces:
            while len(self._calls) <= piece.index:
                self._calls.append(_Call(new_call_id()))
            call = self._calls[piece.index]
            if piece.name and not call.name:
                call.name = piece.name
                yield CallStarted(call.call_id, call.name)
            if piece.arguments and call.name:
                call.streamed.append(piece.arguments)
                yield ArgumentsDelta(call.call_id, piece.arguments)

    def settle(
        self, found: Sequence[Found], text: str, reason: str = UNREADABLE
    ) -> Iterator[CallEvent]:
        """Finish the calls that `text` was found to hold; refuse others that were announced.

        `reason` says why they are refused.
        """
        at = 0
        for index, (name, arguments) in enumerate(found):
            call = self._calls[index] if index < len(self._calls) else _Call(new_call_id())
            streamed = "".join(call.streamed)
            whole, at = self._whole(arguments, text, at, streamed)
            if whole is None or call.name not in ("", name):
                yield self._refuse(call, text, reason)
                continue
            if not call.name:
                yield CallStarted(call.call_id, name)
            if len(whole) > len(streamed):
                yield ArgumentsDelta(call.call_id, whole[len(streamed) :])
            yield CallFinished(call.call_id, name, whole)
        for call in self._calls[len(found) :]:
            yield self._refuse(call, text, reason)
        self._calls.clear()

    def malformed(self, text: str, name: str | None, reason: str = UNREADABLE) -> CallMalformed:
        """Return the event for a text that opened a call which was never announced."""
        return self._refuse(_Call(new_call_id(), name or ""), text, reason)

    def _refuse(self, call: _Call, text: str, reason: str) -> CallMalformed:
        reason = f"{reason}; expected {self._shape}"
        return CallMalformed(call.call_id, call.name or None, text, reason)

    def _whole(self, arguments: str, text: str, at: int, streamed: str) -> tuple[str | None, int]:
        """Return the arguments so that they go on from `streamed`, and where they end in `text`.

        What is streamed is how the model wrote them, and whole-text parsers write them anew.
        """
        if self._verbatim:
            value, start = json_of(arguments), at
            for _ in range(_MOST_LOOKS):
                start = text.find("{", start)
                if start < 0:
                    break
                try:
                    candidate, end = _DECODER.raw_decode(text, start)
                except (ValueError, RecursionError):
                    candidate, end = None, start
                if candidate == value and text.startswith(streamed, start):
                    return text[start:end], end
                start += 1
        return (arguments if arguments.startswith(streamed) else None), at
