"""The error tree of the public API.

    CaesuraError
    ├── UsageError          the caller's mistake; the message says how to fix it
    ├── ContextOverflow     the conversation no longer fits the model's context window
    ├── LimitReached        a run hit one of its own limits (turns, tokens, calls, seconds, cost)
    ├── InvalidOutput       the model's answers did not fit the agent's output type
    ├── EngineFailed        the engine died or refused to start
    └── RequestFailed       the engine lives, and ended one request before its turn did
        └── RequestAborted  the engine's operator aborted it, for example by a pause

A failing tool raises none of these errors: its error is a result that goes to the model.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from caesura.scheduler.errors import (
    CaesuraError,
    ContextOverflow,
    EngineFailed,
    RequestAborted,
    RequestFailed,
    UsageError,
)

if TYPE_CHECKING:
    from caesura.tools.run_view import Usage

__all__ = [
    "CaesuraError",
    "ContextOverflow",
    "EngineFailed",
    "InvalidOutput",
    "LimitReached",
    "RequestAborted",
    "RequestFailed",
    "UsageError",
    "usage_errors",
]


class LimitReached(CaesuraError):
    """A run reached one of its limits; `limit` is the field of `Limits`.

    `total_usage` is what the run and its sub-agents had used, up to their last ended turns, and
    `cost` what that costs by `Limits.prices`.
    """

    def __init__(self, limit: str, message: str, total_usage: "Usage", cost: float) -> None:
        super().__init__(message)
        self.limit = limit
        self.total_usage = total_usage
        self.cost = cost


class InvalidOutput(CaesuraError):
    """No answer of a run fitted the agent's output type; `text` is what the model wrote last."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


@contextmanager
def usage_errors(*kinds: type[Exception]) -> Iterator[None]:
    """Raise `UsageError` with the same message in place of errors of these kinds."""
    try:
        yield
    except kinds as error:
        raise UsageError(str(error)) from error
