"""Exceptions that a tool may raise to describe its failure; others count as failures too.

The dispatcher reads the attributes `retry_after` and `safe_to_retry` of any exception class. The
message is for the model: one sentence.
"""

from typing import ClassVar

_FOREVER_SECONDS = 1e9


class ToolError(RuntimeError):
    """A call failed. The dispatcher retries it where the tool allows that."""

    safe_to_retry: ClassVar[bool] = True
    """Whether the same call may succeed a little later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait before the next try; None: unknown."""


class TimedOut(ToolError):
    """The tool took longer than its limit."""


class Permanent(ToolError):
    """The same call would fail each time. It is not retried and does not count for the breaker."""

    safe_to_retry = False


class Unavailable(ToolError):
    """A service that the tool needs does not answer or refuses work, for `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)


def is_meant_for_the_model(error: BaseException) -> bool:
    """Return whether a tool raised an exception to tell the model something, and not by a bug."""
    return hasattr(error, "safe_to_retry") or hasattr(error, "retry_after")


def may_be_retried(error: BaseException) -> bool:
    """Return whether another try may help after this exception."""
    return getattr(error, "safe_to_retry", True) is not False


def asked_pause_seconds(error: BaseException) -> float:
    """Return the pause that the exception asks for, in seconds; 0 where it asks for none."""
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and 0 < asked <= _FOREVER_SECONDS:
        return float(asked)
    return 0.0
