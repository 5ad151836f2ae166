"""Records of a call and of its result, and the result's text for the model, cut to size."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

from caesura.tools.artifacts import Artifact

ErrorKind = Literal[
    "unknown_tool",
    "invalid_arguments",
    "timeout",
    "failed",
    "resting",
    "cancelled",
    "malformed_call",
    "refused",
]

MAX_RESULT_CHARACTERS = 20_000
"""A longer result text is cut."""
DEFAULT_MAX_TOKENS = 2000
"""Limit for results of a tool that sets none."""
_QUOTED_CHARACTERS = 80
_CHARACTERS_PER_TOKEN = 8
"""Text beyond this many characters for each allowed token is dropped before counting."""
_PROBES = 16
_NEAR_ENOUGH = 0.02
"""The search for the cut ends once less than this fraction of the tokens is unused."""


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


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """To what length results are cut: in a model's tokens, or in characters."""

    count_tokens: Callable[[str], int] | None = None
    """Counts the model's tokens, from any thread; None: only characters are counted."""
    max_tokens: int = DEFAULT_MAX_TOKENS
    """For results of a tool that sets no limit of its own."""
    max_characters: int = MAX_RESULT_CHARACTERS

    @classmethod
    def of_model(cls, count_tokens: Callable[[str], int], context_tokens: int) -> Self:
        """Return the limits by a model's tokens: at most a quarter of its context."""
        return cls(count_tokens, min(DEFAULT_MAX_TOKENS, context_tokens // 4))

    def cut(self, text: str, max_tokens: int | None) -> str:
        """Return the text as valid Unicode, cut to size; `max_tokens` is the tool's own limit."""
        if self.count_tokens is None:
            return fit(text, self.max_characters)
        tokens = self.max_tokens if max_tokens is None else max_tokens
        return fit_tokens(text, tokens, self.count_tokens, self.max_characters)


def text_of(value: Any) -> str:
    """Return a tool's return value as text: a string unchanged, None as "done", the rest as JSON.

    Values that JSON cannot represent become their `str`.
    """
    if value is None:
        return "done"
    if isinstance(value, str):
        return str.__str__(value)
    from pydantic_core import to_json  # a late import: it takes long, and texts need none

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


def fit_tokens(
    text: str, max_tokens: int, count_tokens: Callable[[str], int], max_characters: int
) -> str:
    """Return the text, cut where needed to at most `max_tokens` tokens with its note.

    The note says how long the text was and how much is shown. Where the note alone exceeds
    `max_tokens`, only the note is returned. The function reads at most `max_characters`, or what
    `max_tokens` may need if that is more. It does not assume that a part has fewer tokens than
    the whole: it counts the text that it returns.
    """
    most = max(max_characters, _CHARACTERS_PER_TOKEN * max_tokens)
    characters = len(text)
    # `fit` re-encodes first, so that the cut cannot split a surrogate pair.
    text = fit(text[:most], most)
    total = count_tokens(text)
    if total <= max_tokens and characters <= most:
        return text

    def note(shown: int) -> str:
        if characters > most:
            return f" [cut: {characters} characters in all, {shown} tokens shown]"
        return f" [cut: {total} tokens in all, {shown} shown]"

    # A note has about as many tokens wherever it stands; the final text is counted as a whole.
    room = max_tokens - count_tokens(note(max_tokens))
    while room > 0:
        kept = text[: _longest(text, total, room, count_tokens)]
        cut = kept + note(count_tokens(kept))
        excess = count_tokens(cut) - max_tokens
        if excess <= 0:
            return cut
        room -= max(excess, room // 8)
    return note(0).lstrip()


def _longest(text: str, total: int, room: int, count_tokens: Callable[[str], int]) -> int:
    """Return how many characters of the text, near the maximum, have at most `room` tokens."""
    fits, fits_tokens = 0, 0
    breaks, breaks_tokens = len(text), total
    if total <= room:
        return breaks
    for probe in range(_PROBES):
        if breaks - fits <= 1 or room - fits_tokens <= _NEAR_ENOUGH * room:
            break
        share = (room - fits_tokens) / max(1, breaks_tokens - fits_tokens)
        # Where a part of the text is dense, a proportional guess gains little: halve instead.
        step = (breaks - fits) * (min(share, 1.0) if probe % 3 < 2 else 0.5)
        middle = fits + min(max(1, int(step)), breaks - fits - 1)
        tokens = count_tokens(text[:middle])
        if tokens <= room:
            fits, fits_tokens = middle, tokens
        else:
            breaks, breaks_tokens = middle, tokens
    return fits
