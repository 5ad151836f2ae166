"""What a tool may raise to say how its call failed; any other exception is a failure too.

The dispatcher goes by the attributes `retry_after` and `safe_to_retry`, whatever the class is. An
exception's message is for the model: one sentence.
"""

from typing import ClassVar

_FOREVER_SECONDS = 1e9


class ToolError(RuntimeError):
    """A call failed. It is tried again where the tool allows that."""

    safe_to_retry: ClassVar[bool] = True
    """Whether the same call may do better a little later."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """How many seconds to wait before the next try; None: nothing is known of it."""


class TimedOut(ToolError):
    """The tool took longer than it may."""


class Permanent(ToolError):
    """This very call will fail each time: it is not tried again, and says nothing of the tool."""

    safe_to_retry = False


class Unavailable(ToolError):
    """What the tool needs does not answer, or refuses work; `retry_after`: for so many seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)


def may_be_retried(error: BaseException) -> bool:
    """Whether the exception leaves open that another try helps."""
    return getattr(error, "safe_to_retry", True) is not False


def asked_pause_seconds(error: BaseException) -> float:
    """How long the exception asks to wait; 0 where it does not, or says what makes no sense."""
    asked = getattr(error, "retry_after", None)
    if isinstance(asked, int | float) and 0 < asked <= _FOREVER_SECONDS:
        return float(asked)
    return 0.0
