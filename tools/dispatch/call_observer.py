"""How calls are watched from outside, by whoever traces them. Tools themselves know nothing of it.

A dispatcher's `on_call` is told of each call that starts and returns its `CallWatch`.
"""

from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Protocol

from caesura.tools.result import ToolCall, ToolResult

Fact = str | int | float | bool


class CallWatch(Protocol):
    """What watches one call. Its methods are called in the event loop, and raise nothing."""

    @property
    def context(self) -> Context:
        """The context variables that the call's task runs with, a copy of the caller's own."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers for what the tool asks of others: they say whose call it is."""
        ...

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Note that something happened in the call: a retry, a person asked."""
        ...

    def ended(self, result: ToolResult | None) -> None:
        """The call has ended; None: whoever awaited it was cancelled. Called once."""
        ...


OnCall = Callable[[ToolCall], CallWatch]
