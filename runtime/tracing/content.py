"""The content of messages in the GenAI conventions' form: captured on request only, and bounded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from caesura.intercept.calls.events import CallFinished
from caesura.scheduler.messages import Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_CHARACTERS = 4096
"""The most characters of one text; a longer text is cut."""
MAX_NAME_CHARACTERS = 100
MAX_MESSAGES = 20
"""The most messages of one attribute; of more messages, the last ones are kept."""


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

    def is_sent(self, span: "Span") -> bool:
        """Return whether this span's content leaves this machine with it."""
        return self._sent and span.is_recording()

    def is_wanted(self, span: "Span") -> bool:
        """Return whether this span's content has a destination."""
        return (self._sent or self._keeper is not None) and span.is_recording()

    def set(self, span: "Span", name: str, text: str) -> None:
        """Write a content attribute to the destination."""
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
    """Return the text, cut at `MAX_CHARACTERS` with a visible note."""
    if len(text) <= MAX_CHARACTERS:
        return clean(text, MAX_CHARACTERS)
    return f"{clean(text, MAX_CHARACTERS)} [cut: {len(text)} characters in all]"


def input_messages(messages: Sequence[Message]) -> str:
    """Return the last messages that were sent to the model, as JSON."""
    return _json([_message(message) for message in messages[-MAX_MESSAGES:]])


def output_messages(text: str, reasoning: str, calls: Iterable[CallFinished], reason: str) -> str:
    """Return the reasoning, the text and the calls of a turn, as JSON."""
    parts: list[dict[str, Any]] = []
    if reasoning:
        parts.append({"type": "reasoning", "content": cut(reasoning)})
    if text:
        parts.append(_text(text))
    shown = list(calls)[:MAX_MESSAGES]
    parts += [_call(call.call_id, call.name, call.arguments) for call in shown]
    return _json([{"role": "assistant", "parts": parts, "finish_reason": reason}])


def _message(message: Message) -> dict[str, Any]:
    content = _plain(message.get("content"))
    if message.get("role") == "tool":
        part = {"type": "tool_call_response", "id": message.get("tool_call_id")}
        return {"role": "tool", "parts": [{**part, "response": cut(content)}]}
    parts = [_text(content)] if content else []
    for call in list(message.get("tool_calls") or ())[:MAX_MESSAGES]:
        said = call["function"]
        parts.append(_call(call.get("id"), said.get("name"), str(said.get("arguments") or "")))
    return {"role": message.get("role"), "parts": parts}


def _plain(content: Any) -> str:
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
