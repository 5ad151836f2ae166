"""The content of messages in the GenAI conventions' form: captured on request only, and bounded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from caesura.intercept.calls.events import CallFinished
from caesura.runtime.recording import conventions as names
from caesura.runtime.tracing.masking import masked
from caesura.scheduler.messages import Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_CHARACTERS = 4096
"""The most characters of one text; a longer text is cut."""
MAX_NAME_CHARACTERS = 100
MAX_MESSAGES = 20
"""The most new messages of a turn that are kept, the last ones."""
MAX_INPUT_CHARACTERS = 2**17
"""The most characters of the messages of a whole input; the first and the last ones are kept."""


class Input(NamedTuple):
    """The messages of a turn's whole input, as JSON, and how many do not fit."""

    text: str
    left_out: int = 0


class Keeper(Protocol):
    """A store for content that the spans themselves must not hold."""

    def keep(self, span: "Span", name: str, text: str) -> None:
        """Store the text of an attribute of the span."""
        ...


class Content:
    """The destination of content: the spans' attributes, else a keeper, else none."""

    def __init__(self, sent: bool, keeper: Keeper | None) -> None:
        self._sent = sent
        self._keeper = keeper

    def set_input(self, span: "Span", whole: "Input", new: str) -> None:
        """Write the input of a turn: all of it where it is sent, what is new where it is kept.

        A recording holds the other messages in its earlier turns.
        """
        if self._sent:
            span.set_attribute(names.INPUT_MESSAGES, whole.text)
            if whole.left_out:
                span.set_attribute(names.INPUT_LEFT_OUT, whole.left_out)
        if self._keeper is not None:
            self._keeper.keep(span, names.INPUT_MESSAGES, new)

    def is_sent(self, span: "Span") -> bool:
        """Return whether this span's content leaves this machine with it."""
        return self._sent and span.is_recording()

    def is_wanted(self, span: "Span") -> bool:
        """Return whether this span's content has a destination."""
        return (self._sent or self._keeper is not None) and span.is_recording()

    def set(self, span: "Span", name: str, text: str) -> None:
        """Write a content attribute to the destination. Its texts went through `cut`."""
        if self._sent:
            span.set_attribute(name, text)
        elif self._keeper is not None:
            self._keeper.keep(span, name, text)


def is_captured(environ: Mapping[str, str]) -> bool:
    """Return whether the environment requests content; `span_only` is other libraries' value."""
    return environ.get(CAPTURE, "").strip().lower() in ("true", "span_only", "span_and_event")


def clean(text: str, most: int) -> str:
    """Return the first `most` characters as valid Unicode.

    One text that cannot be encoded would lose a whole batch of spans.
    """
    return text[:most].encode("utf-8", "replace").decode()


def cut(text: str) -> str:
    """Return the text, masked, then cut at `MAX_CHARACTERS` with a visible note.

    A mask must see the whole text: of a secret at the cut it would not know the first half.
    """
    text = masked(text)
    if len(text) <= MAX_CHARACTERS:
        return clean(text, MAX_CHARACTERS)
    return f"{clean(text, MAX_CHARACTERS)} [cut: {len(text)} characters in all]"


def each_message(messages: Sequence[Message]) -> list[str]:
    """Return the JSON of each message."""
    return [_json(_message(message)) for message in messages]


def input_messages(messages: Sequence[str]) -> str:
    """Return the last of these messages, which are JSON, as one JSON."""
    return f"[{', '.join(messages[-MAX_MESSAGES:])}]"


def whole_input(messages: Sequence[str]) -> Input:
    """Return the messages of a conversation, which are JSON, as the input of a turn.

    Where they exceed `MAX_INPUT_CHARACTERS`, the first one and the last ones are kept.
    """
    if not messages:
        return Input("[]")
    left = MAX_INPUT_CHARACTERS - len(messages[0])
    kept: list[str] = []
    for message in reversed(messages[1:]):
        left -= len(message)
        if left < 0:
            break
        kept.append(message)
    text = ", ".join([messages[0], *reversed(kept)])
    return Input(f"[{text}]", len(messages) - 1 - len(kept))


def answer_message(text: str, reasoning: str, calls: Iterable[CallFinished]) -> dict[str, Any]:
    """Return the reasoning, the text and the calls of a turn as a message."""
    parts: list[dict[str, Any]] = []
    if reasoning:
        parts.append({"type": "reasoning", "content": cut(reasoning)})
    if text:
        parts.append(_text(text))
    shown = list(calls)[:MAX_MESSAGES]
    parts += [_call(call.call_id, call.name, call.arguments) for call in shown]
    return {"role": "assistant", "parts": parts}


def json_of(message: Mapping[str, Any]) -> str:
    """Return a message as JSON."""
    return _json(message)


def _message(message: Message) -> dict[str, Any]:
    content = plain(message.get("content"))
    if message.get("role") == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id")}
        return {"role": "tool", "parts": [{**part, "response": cut(content)}]}
    parts = [_text(content)] if content else []
    for call in list(message.get("tool_calls") or ())[:MAX_MESSAGES]:
        said = call["function"]
        parts.append(_call(call.get("id"), said.get("name"), str(said.get("arguments") or "")))
    return {"role": message.get("role"), "parts": parts}


def plain(content: Any) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content[:MAX_MESSAGES]
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": cut(text)}


def _call(call_id: Any, name: Any, arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": cut(arguments)}


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return clean(text, len(text))
