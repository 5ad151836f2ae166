"""The records of a call and of its result, and a result's text for the model."""

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
"""How long a result's text may be before it is cut."""
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
    """What became of one call."""

    call_id: str
    name: str
    content: str
    """The text for the model; `error: <one line>` when `error` is set."""
    error: ErrorKind | None
    """What kind of failure it was; None: none."""
    started_at: float
    """When the call was handed in, in seconds of the dispatcher's clock."""
    seconds: float
    """From then to the result: waiting for a slot, retries and their pauses included."""
    attempts: int
    """How often the tool was run; 0 when it never was."""
    artifacts: tuple[Artifact, ...] = ()
    """Files that the call made; `content` names them."""


@dataclass(frozen=True, slots=True)
class Output:
    """What a tool returns that makes files: the text for the model, and the files."""

    text: str
    artifacts: tuple[Artifact, ...] = ()


def text_of(value: Any) -> str:
    """A tool's return value as text: a string as it is, None as "done", the rest as JSON.

    What JSON cannot say is told by `str`.
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
    """`error: <one line>`; an exception without a message is told by its class's name."""
    if isinstance(reason, BaseException):
        name = type(reason).__name__
        try:
            reason = str(reason).strip() or name
        except Exception:
            reason = name
    return f"error: {' '.join(reason.split())}"


def fit(text: str, max_characters: int) -> str:
    """The text, cut with a visible note where it is too long, and always valid Unicode."""
    if len(text) > max_characters:
        text = f"{text[:max_characters]} [cut: {len(text)} characters in all]"
    # A lone surrogate would break the encoding of the whole message later on.
    return text.encode("utf-8", "replace").decode()


def malformed(
    call_id: str, name: str, text: str, reason: str, *, started_at: float | None = None
) -> ToolResult:
    """The result of a call that could not be parsed.

    text: what the model wrote, of which the beginning is quoted; reason: what is wrong with it;
    started_at: seconds of the session's clock, by default of `time.monotonic`.
    """
    quoted = text if len(text) <= _QUOTED_CHARACTERS else f"{text[:_QUOTED_CHARACTERS]}..."
    content = error_text(f"the tool call could not be read: {reason}; it was: {quoted}")
    return ToolResult(
        call_id=call_id,
        name=name,
        content=fit(content, MAX_RESULT_CHARACTERS),
        error="malformed_call",
        started_at=time.monotonic() if started_at is None else started_at,
        seconds=0.0,
        attempts=0,
    )
