"""What was said, as the GenAI conventions write it: only if that is asked for, and bounded."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from caesura.intercept.calls.events import CallFinished
from caesura.scheduler.messages import Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
MAX_CHARACTERS = 4096
"""A longer text is cut."""
MAX_NAME_CHARACTERS = 100
MAX_MESSAGES = 20
"""Of more, the last are sent."""


class Keeper(Protocol):
    """Keeps content beside the spans."""

    def keep(self, span: "Span", name: str, text: str) -> None:
        """Keep what would be an attribute."""
        ...


class Content:
    """Where content goes: to a keeper, which alone may have it, or with the spans, or nowhere."""

    def __init__(self, sent: bool, keeper: Keeper | None) -> None:
        self._sent = sent
        self._keeper = keeper

    def is_wanted(self, span: "Span") -> bool:
        """Whether anybody gets to see this span's content."""
        return (self._sent or self._keeper is not None) and span.is_recording()

    def set(self, span: "Span", name: str, text: str) -> None:
        """Hand it over."""
        if self._sent:
            span.set_attribute(name, text)
        elif self._keeper is not None:
            self._keeper.keep(span, name, text)


def is_captured(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for content; `span_only` is how other libraries say it."""
    return environ.get(CAPTURE, "").strip().lower() in ("true", "span_only", "span_and_event")


def clean(text: str, most: int) -> str:
    """The text's beginning, always valid Unicode: what cannot be encoded loses a whole batch."""
    return text[:most].encode("utf-8", "replace").decode()


def cut(text: str) -> str:
    """The text, with a visible note where it is too long."""
    if len(text) <= MAX_CHARACTERS:
        return clean(text, MAX_CHARACTERS)
    return f"{clean(text, MAX_CHARACTERS)} [cut: {len(text)} characters in all]"


def input_messages(messages: Sequence[Message]) -> str:
    """The last of what was sent to the model, as JSON."""
    return _json([_message(message) for message in messages[-MAX_MESSAGES:]])


def output_messages(text: str, calls: Iterable[CallFinished], reason: str) -> str:
    """What the model wrote in a turn, as JSON."""
    parts: list[dict[str, Any]] = [_text(text)] if text else []
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
    """The text of a message's content, which may be a list of parts."""
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
