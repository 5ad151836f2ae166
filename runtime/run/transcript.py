"""The history of a conversation, built from the events of its turns."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from caesura.intercept.calls.events import (
    CallFinished,
    CallMalformed,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import RunEvent, ToolReturned
from caesura.scheduler.media import Part
from caesura.scheduler.messages import Message

CANCELLED = "error: cancelled: the run ended before this tool returned"
"""The history's answer to a call without a result."""

NAMELESS = "malformed"
"""The name of a call whose own name could not be parsed."""


def tool_message(call_id: str, name: str, content: str | Sequence[Part]) -> Message:
    """Return the message that carries a tool's result, a text or parts, to the model."""
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def digest(messages: Sequence[Message]) -> str:
    """Return a digest of the messages, which is the same in every process."""
    text = json.dumps(messages, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def asker_of(user: str | None) -> str:
    """Return a digest of a program's user, to whom approvals are bound; empty without a user."""
    return digest([{"program": "sdk", "user": user}]) if user else ""


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str
    content: str | None = None


class Transcript:
    """Messages in OpenAI's form. A new session could begin with `messages` at any time.

    The transcript needs every sent message and every event. It adds the assistant message when a
    turn ends, and the tool messages when all results are known. `settle` completes a turn that
    was cut off.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = list(messages)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._decoding = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history so far, without the turn under way."""
        return tuple(self._messages)

    def add(self, message: Message) -> None:
        """Append a message of the caller; use one that answers an open call as its result."""
        call_id = message.get("tool_call_id")
        if any(call.id == call_id for call in self._calls):
            self._answer(str(call_id), message["content"])
        else:
            self._messages.append(message)

    def take(self, event: RunEvent) -> None:
        """Add one event of a run."""
        match event:
            case TextDelta(text=text):
                self._text.append(text)
                self._decoding = True
            case ReasoningDelta(text=text):
                self._reasoning.append(text)
                self._decoding = True
            case CallFinished():
                self._calls.append(_Call(event.call_id, event.name, event.arguments))
                self._decoding = True
            case CallMalformed():
                self._calls.append(_malformed(event))
                self._decoding = True
            case TurnEnded():
                self._end_turn()
            case ToolReturned(call=call, result=result):
                self._answer(call.id, result.content)
            case _:
                pass

    def settle(self) -> bool:
        """Complete a turn that was cut off: keep its text, and answer its open calls as cancelled.

        Return whether there was such a turn. The engine's session then differs from this history,
        and the caller has to open a new one.
        """
        cut = self._decoding
        if self._decoding:
            self._end_turn()
        for call in self._calls:
            if call.content is None:
                call.content = CANCELLED
                cut = True
        self._write_results()
        return cut

    def rewind(self, length: int) -> None:
        """Remove the turn under way and all messages after the first `length`."""
        del self._messages[length:]
        self._text.clear()
        self._reasoning.clear()
        self._calls.clear()
        self._decoding = False

    def _end_turn(self) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [_tool_call(call) for call in self._calls]
        self._messages.append(message)
        self._text.clear()
        self._reasoning.clear()
        self._decoding = False

    def _answer(self, call_id: str, content: str) -> None:
        for call in self._calls:
            if call.id == call_id:
                call.content = content
        if all(call.content is not None for call in self._calls):
            self._write_results()

    def _write_results(self) -> None:
        """Append the results in call order, which is also the order that the model sees."""
        for call in self._calls:
            self._messages.append(tool_message(call.id, call.name, call.content or ""))
        self._calls.clear()


def _tool_call(call: _Call) -> Message:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _malformed(event: CallMalformed) -> _Call:
    # Chat templates parse `arguments`, so other text has to be wrapped in a JSON object.
    arguments = json.dumps({"malformed": event.text}, ensure_ascii=False)
    return _Call(event.call_id, event.name or NAMELESS, arguments)
