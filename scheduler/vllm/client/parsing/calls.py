"""What all parsers of turns share: their interface, and the events of the calls that they find."""

import json
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallEvent,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
)

UNREADABLE = "the call cannot be read"
UNCLOSED = "the turn ended before the call was closed, so it was not run"
_DECODER = json.JSONDecoder()
_MAX_ATTEMPTS = 16


class TurnParser(ABC):
    """Parses one turn written in one turn-based format."""

    reasoning_tokens = 0
    """How many tokens of reasoning were read, if the parser itself tells reasoning apart."""

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that further text belongs to it."""
        return False

    @property
    def behind_call(self) -> bool:
        """Whether only spaces have followed the last call."""
        return False

    @property
    def held_characters(self) -> int:
        """How many characters of the turn `end` reads at once, or a few more."""
        return 0

    @abstractmethod
    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""

    @abstractmethod
    def end(self) -> Iterator[Event]:
        """Finish an open call, and yield held text as text events.

        The turn has ended, or the model begins to think. Text after that is parsed like a new turn.
        """

    def take_unread(self) -> bytes:
        """Return bytes that seemed part of a call but were not, to be parsed again as text."""
        return b""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a call from a streaming parser: index, name (once), further arguments."""

    index: int
    name: str
    arguments: str


class Found(NamedTuple):
    """A complete call; `arguments` is the JSON text of an object."""

    name: str
    arguments: str


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str = ""
    streamed: list[str] = field(default_factory=list)


class CallEvents:
    """Turns the calls of one region into events: announced as they arrive, settled at its end."""

    def __init__(self, shape: str, verbatim: bool) -> None:
        """Create it; malformed calls report `shape`; `verbatim`: arguments are JSON in the text."""
        self._shape = shape
        self._verbatim = verbatim
        self._calls: list[_Call] = []

    @property
    def announced(self) -> bool:
        """Whether any call has been announced and not settled."""
        return bool(self._calls)

    def announce(self, pieces: Iterable[Piece]) -> Iterator[CallEvent]:
        """Yield the events for a streaming parser's pieces."""
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
        """Finish the calls `found` in `text`; refuse other announced calls with `reason`."""
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
        """Return the event for a malformed call that was never announced."""
        return self._refuse(_Call(new_call_id(), name or ""), text, reason)

    def _refuse(self, call: _Call, text: str, reason: str) -> CallMalformed:
        reason = f"{reason}; expected {self._shape}"
        return CallMalformed(call.call_id, call.name or None, text, reason)

    def _whole(self, arguments: str, text: str, at: int, streamed: str) -> tuple[str | None, int]:
        """Return the arguments with `streamed` as their begin, and where they end in `text`.

        Streamed arguments keep the model's spelling, while whole-text parsers serialise them again.
        The arguments are None if they do not begin with `streamed`.
        """
        if self._verbatim:
            value, start = json_of(arguments), at
            for _ in range(_MAX_ATTEMPTS):
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


def new_call_id() -> str:
    """Return a new id of nine alphanumeric characters, as Mistral's chat templates require."""
    return uuid.uuid4().hex[:9]


def name_in(text: str, named: str) -> str | None:
    """Return the tool's name in a call's text, by the format's pattern `named`, or None."""
    found = re.search(named, text)
    return next((name for name in found.groups() if name), None) if found else None


def json_of(text: str) -> Any:
    """Return the value of a JSON text, or None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
