"""Error statuses of spans."""

import asyncio

from opentelemetry.trace import Span, Status, StatusCode

from caesura.runtime.errors import CaesuraError, LimitReached, UsageError
from caesura.runtime.recording import conventions as names
from caesura.runtime.tracing.content import clean

MAX_CHARACTERS = 300


def fail(span: Span, kind: str, description: str | None = None) -> None:
    """Set a span's status to an error of this kind."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, description))


def fail_by(span: Span, error: BaseException) -> None:
    """Set a span's status by an exception.

    The status quotes only Caesura's own errors. It does not quote one that was raised from
    another library's error, which may hold content of messages.
    """
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        fail(span, names.CANCELLED)
        return
    if isinstance(error, LimitReached):
        span.set_attribute(names.LIMIT, error.limit)
    described = clean(" ".join(str(error).split()), MAX_CHARACTERS)
    quotes = isinstance(error, UsageError) and error.__cause__ is not None
    own = isinstance(error, CaesuraError) and not quotes
    fail(span, type(error).__name__, described if own else None)
