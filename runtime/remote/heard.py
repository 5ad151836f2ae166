"""What a server's stream says of one turn, as the events of a turn.

Servers may leave out what an engine promises: ids of calls, arguments that are an object, counts of
tokens, an end. `Heard` makes the events of `caesura.intercept.calls.events` of it all the same.
"""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from caesura.intercept.calls.call_body import JsonText
from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallEvent,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    TurnEnded,
)
from caesura.scheduler.messages import Message


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a server counts of a turn: the whole prompt, and what the model wrote."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    text: JsonText = field(default_factory=lambda: JsonText(leading=True))
    pieces: list[str] = field(default_factory=list)
    ended: bool = False

    @property
    def arguments(self) -> str:
        return "".join(self.pieces).strip() or "{}"


class Heard:
    """One turn, as far as it was heard. Each method returns the events that it makes.

    `number` is that of the turn, for ids of calls where the server gives none. `taken` are the ids
    of earlier calls, since some servers begin anew in each turn.
    """

    def __init__(self, number: int, taken: set[str]) -> None:
        self._number = number
        self._taken = taken
        self._calls: dict[object, _Call] = {}
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self.reasoning_field = "reasoning"
        """The field of a message in which the server tells what the model thought."""

    def text(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[Event]:
        """Add text of the answer."""
        self._text.append(text)
        return [TextDelta(text, logprobs)] if text else []

    def reasoning(self, text: str) -> list[Event]:
        """Add text that the model thought."""
        self._thoughts.append(text)
        return [ReasoningDelta(text)] if text else []

    def call(self, key: object, call_id: str | None, name: str) -> list[Event]:
        """Begin a call; `key` names it within the turn. Those before it are complete."""
        events = self._finish_open()
        made = self._new_id(call_id)
        self._calls[key] = _Call(made, name)
        return [*events, CallStarted(made, name)]

    def arguments(self, key: object, text: str) -> list[Event]:
        """Add to the arguments of a call; a complete JSON object finishes it at once."""
        call = self._calls.get(key)
        if call is None or call.ended or not text:
            return []
        call.pieces.append(text)
        events: list[Event] = [ArgumentsDelta(call.id, text)]
        if call.text.feed(text.encode()) is not None:
            events.append(_finished(call))
        return events

    @property
    def is_empty(self) -> bool:
        """Whether nothing was heard yet."""
        return not (self._calls or self._text or self._thoughts)

    def has_call(self, key: object) -> bool:
        """Return whether a call of this name was begun."""
        return key in self._calls

    def end(self, cut: bool, tokens: Tokens, before: int) -> list[Event]:
        """End the turn; `cut`: a token limit did. `before` are the tokens of the turns before."""
        events = self._finish_open()
        reason: Literal["call", "stop", "length"] = "call" if self._calls else "stop"
        new = max(tokens.prompt - before, 0)
        ended = TurnEnded(
            "length" if cut else reason,
            new,
            tokens.completion,
            tokens.cached,
            reasoning_tokens=tokens.reasoning,
        )
        return [*events, ended]

    @property
    def message(self) -> Message:
        """The turn as a message of the history."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._thoughts:
            message[self.reasoning_field] = "".join(self._thoughts)
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in self._calls.values()
            ]
        return message

    def _finish_open(self) -> list[Event]:
        return [_finished(call) for call in self._calls.values() if not call.ended]

    def _new_id(self, told: str | None) -> str:
        made = told or f"call_{self._number}_{len(self._calls) + 1}"
        if made in self._taken:
            made = f"{made}_{self._number}_{len(self._calls) + 1}"
        self._taken.add(made)
        return made


def _finished(call: _Call) -> CallEvent:
    """Return the last event of a call: its arguments, or why they are none."""
    call.ended = True
    try:
        is_object = isinstance(json.loads(call.arguments), dict)
        reason = "the arguments are no JSON object"
    except ValueError as error:
        is_object, reason = False, f"the arguments are no JSON: {error}"
    if is_object:
        return CallFinished(call.id, call.name, call.arguments)
    return CallMalformed(call.id, call.name, call.arguments, reason)
