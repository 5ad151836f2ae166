"""Records of a call and of its result, and the result's text for the model."""

import time
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import to_json

from caesura.tools.artifacts import Artifact

ErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "timeout",
    "failed",
    "resting",
    "cancelled",
    "malformed_call",
]

MAX_RESULT_CHARACTERS = 20_000
"""A longer result text is cut."""
_QUOTED_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON text, unchecked."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call."""

    call_id: str
    name: str
    content: str
    """The text for the model; `error: <one line>` when `error` is set."""
    error: ErrorKind | None
    """The kind of failure; None: the call succeeded."""
    started_at: float
    """When the dispatcher got the call, in seconds of its clock."""
    seconds: float
    """From `started_at` to the result, including the wait for a slot, retries and their pauses."""
    attempts: int
    """How often the tool ran; 0 when it never did."""
    artifacts: tuple[Artifact, ...] = ()
    """Files that the call made; `content` names them."""


@dataclass(frozen=True, slots=True)
class Output:
    """Return value of a tool that makes files: the text for the model, and the files."""

    text: str
    artifacts: tuple[Artifact, ...] = ()


def text_of(value: Any) -> str:
    """Return a tool's return value as text: a string unchanged, None as "done", the rest as JSON.

    Values that JSON cannot represent become their `str`.
    """
    if value is None:
        return "done"
    if isinstance(value, str):
        return str.__str__(value)
    try:
        return to_json(value).decode()
    except Exception:
        return str(value)


def error_text(reason: str | BaseException) -> str:
    """Return `error: <one line>`; an exception without a message becomes its class name."""
    if isinstance(reason, BaseException):
        name = type(reason).__name__
        try:
            reason = str(reason).strip() or name
        except Exception:
            reason = name
    return f"error: {' '.join(reason.split())}"


def fit(text: str, max_characters: int) -> str:
    """Return the text as valid Unicode, cut with a visible note where it is too long."""
    if len(text) > max_characters:
        text = f"{text[:max_characters]} [cut: {len(text)} characters in all]"
    # A lone surrogate would break the encoding of the whole message later.
    return text.encode("utf-8", "replace").decode()


def malformed(
    call_id: str, name: str, text: str, reason: str, *, started_at: float | None = None
) -> ToolResult:
    """Return the result of a call that could not be parsed.

    text: what the model wrote; its beginning is quoted. reason: what is wrong with it.
    started_at: seconds of the session's clock, by default of `time.monotonic`.
    """
    quoted = text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}..."
    content = error_text(f"the tool call could not be parsed: {reason}; it was: {quoted}")
    return ToolResult(
        call_id=call_id,
        name=name,
        content=fit(content, MAX_RESULT_CHARACTERS),
        error="malformed_call",
        started_at=time.monotonic() if started_at is None else started_at,
        seconds=0.0,
        attempts=0,
    )
