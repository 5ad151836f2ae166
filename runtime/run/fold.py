"""One fold of a run's events, which the answers of all APIs, the SDK and the history read.

`RunFold` sums up the run. `Transcript` makes the history of a conversation.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Never, TypeVar

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    ModelChanged,
    ReasoningDelta,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.events import (
    CallGoesOn,
    RunEnded,
    RunEvent,
    RunReason,
    Steered,
    ToolReturned,
    Usage,
)
from caesura.scheduler.messages import LATE, Message, Part, with_lead

Piece = TypeVar("Piece")
CANCELLED = "error: cancelled: the run ended before this tool returned"
"""The history's answer to a call without a result."""

NAMELESS = "malformed"
"""The name of a call whose own name could not be parsed."""


def tool_message(call_id: str, name: str, content: str | Sequence[Part]) -> Message:
    """Return the message that carries a tool's result, a text or parts, to the model."""
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


def acknowledgement(call_id: str, name: str) -> str:
    """Return what the model is told of a call in the background in place of its result."""
    return (
        f"The call {call_id} of {name} runs in the background. Go on without its result, which"
        " comes later, in a message that begins with this id."
    )


def late_message(call_id: str, name: str, content: str | Sequence[Part]) -> Message:
    """Return the message that carries the result of a call in the background to the model.

    It names the call, since other messages stand between.
    """
    told = with_lead(f"The call {call_id} of {name} has returned:", content)
    return {**tool_message(call_id, name, told), LATE: True}


def digest(messages: Sequence[Message]) -> str:
    """Return a digest of the messages, which is the same in every process."""
    text = json.dumps(messages, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def asker_of(user: str | None) -> str:
    """Return a digest of a program's user, to whom approvals are bound; empty without a user."""
    return digest([{"program": "sdk", "user": user}]) if user else ""


@dataclass(slots=True)
class UsageCount:
    """Adds up the usage of events; `total` is the sum so far."""

    total: Usage = field(default_factory=Usage)

    def take(self, event: RunEvent) -> None:
        """Count a call, malformed or not, and the tokens of a turn at its end."""
        match event:
            case CallFinished() | CallMalformed():
                self.total += Usage(calls=1)
            case TurnEnded():
                tokens = (event.prompt_tokens, event.completion_tokens, event.cached_tokens)
                self.total += Usage(*tokens, turns=1, reasoning_tokens=event.reasoning_tokens)
            case _:
                pass


class RunFold(Generic[Piece]):
    """The sums of a run, and what a subclass makes of its events: messages, or pieces of an answer.

    A subclass overrides the methods of the events that it shows. Each may return pieces, which
    `take` returns.
    """

    def __init__(self) -> None:
        self.ended: RunEnded | None = None
        """The end of the run, once it has come."""
        self.cached_tokens: int | None = None
        """Tokens of the first prompt that were in the KV cache, or None before the first turn."""
        self.first_prompt_tokens = 0
        self.has_malformed_call = False
        self._reason: RunReason = "stop"
        self._usage = UsageCount()
        self._returned: dict[str, ToolReturned | None] = {}
        self._resumes: list[ResumeReport] = []

    def take(self, event: RunEvent) -> list[Piece]:
        """Add one event; return the pieces that it makes."""
        self._usage.take(event)
        match event:
            case TextDelta():
                return self._on_text(event) or []
            case ReasoningDelta(text=text):
                return self._on_reasoning(text) or []
            case CallStarted():
                return self._on_call(event) or []
            case ArgumentsDelta(call_id=call_id, text=text):
                return self._on_arguments(call_id, text) or []
            case CallFinished():
                self._returned[event.call_id] = None
                return self._on_finished(event) or []
            case CallMalformed():
                self.has_malformed_call = True
                self._returned[event.call_id] = None
                return self._on_malformed(event) or []
            case TurnEnded():
                self._sum(event)
                return self._on_turn_end(event) or []
            case CallGoesOn() | ToolReturned() | Steered():
                return self._take_between(event)
            case RunEnded(reason=reason):
                self.ended, self._reason = event, reason
        return []

    def _take_between(self, event: CallGoesOn | ToolReturned | Steered) -> list[Piece]:
        """Add an event between two turns."""
        if isinstance(event, CallGoesOn):
            return self._on_going_on(event) or []
        if isinstance(event, Steered):
            return self._on_steered(event) or []
        self._returned[event.call.id] = event
        return self._on_returned(event) or []

    def _sum(self, turn: TurnEnded) -> None:
        if self.cached_tokens is None:
            self.cached_tokens = turn.cached_tokens
            self.first_prompt_tokens = turn.prompt_tokens
        if turn.resume is not None:
            self._resumes.append(turn.resume)

    def cut(self) -> None:
        """Record that a token limit ended the run between two turns."""
        self._reason = "length"

    @property
    def is_cut(self) -> bool:
        """Whether a token limit ended the run."""
        return self._reason == "length"

    @property
    def leaves_calls(self) -> bool:
        """Whether the run ended with calls that the client will answer later."""
        return self._reason == "calls"

    @property
    def total(self) -> Usage:
        """The usage of all turns."""
        return self._usage.total

    @property
    def returned(self) -> list[ToolReturned]:
        """The calls that were run here and have a result, in the model's order."""
        return [returned for returned in self._returned.values() if returned is not None]

    def hide(self, call_id: str) -> None:
        """Leave a call out of `extension`, since the answer shows it."""
        self._returned.pop(call_id, None)

    def extension(self) -> dict[str, Any] | None:
        """Return the calls that were run here and the resumes, or None if no tool was run."""
        ran = self.returned
        if not ran:
            return None
        return {"calls": list(map(_ran, ran)), "resumes": list(map(asdict, self._resumes))}

    # -- the events that a subclass may show -------------------------------------------------------

    def _on_text(self, event: TextDelta) -> list[Piece] | None:
        return None

    def _on_reasoning(self, text: str) -> list[Piece] | None:
        return None

    def _on_call(self, event: CallStarted) -> list[Piece] | None:
        return None

    def _on_arguments(self, call_id: str, text: str) -> list[Piece] | None:
        return None

    def _on_finished(self, event: CallFinished) -> list[Piece] | None:
        return None

    def _on_malformed(self, event: CallMalformed) -> list[Piece] | None:
        return None

    def _on_turn_end(self, event: TurnEnded) -> list[Piece] | None:
        return None

    def _on_going_on(self, event: CallGoesOn) -> list[Piece] | None:
        return None

    def _on_steered(self, event: Steered) -> list[Piece] | None:
        return None

    def _on_returned(self, event: ToolReturned) -> list[Piece] | None:
        return None


def _ran(returned: ToolReturned) -> dict[str, Any]:
    result = returned.result
    return {
        "name": returned.call.name,
        "arguments": returned.call.arguments,
        "content": result.content,
        "error": result.error,
        "seconds": result.seconds,
        "artifacts": [
            {"url": made.url, "media_type": made.media_type, "bytes": made.size_bytes}
            for made in result.artifacts
        ],
    }


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str
    content: str | None = None


class Transcript(RunFold[Never]):
    """Messages in OpenAI's form. A new session could begin with `messages` at any time.

    The transcript needs every sent message and every event. It adds the assistant message when a
    turn ends, and the tool messages when all results are known. `settle` completes a turn that
    was cut off.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        super().__init__()
        self._messages: list[Message] = list(messages)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_Call] = []
        self._late: dict[str, str] = {}
        """The names of the tools whose calls run in the background, by the calls' ids."""
        self._decoding = False

    def take(self, event: RunEvent) -> list[Never]:
        """Add one event."""
        if isinstance(event, ModelChanged):
            self.rewind(len(self._messages))
        return super().take(event)

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

    @property
    def has_open_calls(self) -> bool:
        """Whether the turn under way, or the last one, has calls without results."""
        return bool(self._calls)

    def lead(self, message: Message) -> None:
        """Put a message in front of all others."""
        self._messages.insert(0, message)

    def _on_text(self, event: TextDelta) -> None:
        self._text.append(event.text)
        self._decoding = True

    def _on_reasoning(self, text: str) -> None:
        self._reasoning.append(text)
        self._decoding = True

    def _on_finished(self, event: CallFinished) -> None:
        self._calls.append(_Call(event.call_id, event.name, event.arguments))
        self._decoding = True

    def _on_malformed(self, event: CallMalformed) -> None:
        self._calls.append(_malformed(event))
        self._decoding = True

    def _on_turn_end(self, event: TurnEnded) -> None:
        self._end_turn()

    def _on_steered(self, event: Steered) -> None:
        self._messages.append(event.message)

    def _on_going_on(self, event: CallGoesOn) -> None:
        if not event.is_clients:
            self._late[event.call.id] = event.call.name
        self._answer(event.call.id, event.text)

    def _on_returned(self, event: ToolReturned) -> None:
        call, content = event.call, event.result.content
        if self._late.pop(call.id, None) is None:
            self._answer(call.id, content)
        else:
            self._messages.append(late_message(call.id, call.name, content))

    def settle(self) -> bool:
        """Complete a turn that was cut off: keep its text, and answer its open calls as cancelled.

        So are those in the background. Return whether there was anything to complete. The engine's
        session then differs from this history, and the caller has to open a new one.
        """
        cut = self._decoding
        if self._decoding:
            self._end_turn()
        for call in self._calls:
            if call.content is None:
                call.content = CANCELLED
                cut = True
        self._write_results()
        for call_id, name in self._late.items():
            self._messages.append(late_message(call_id, name, CANCELLED))
            cut = True
        self._late.clear()
        return cut

    def conclude(self, text: str) -> None:
        """End the run with an answer that the model has not written.

        It stands in place of the turn under way, unless that has calls: they stay, with their
        results or as cancelled.
        """
        if not self._calls:
            self.rewind(len(self._messages))
        if self._calls or self._late:
            self.settle()
        self._messages.append({"role": "assistant", "content": text})

    def rewind(self, length: int) -> None:
        """Remove the turn under way and all messages after the first `length`."""
        if length < len(self._messages):
            self._late.clear()
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
