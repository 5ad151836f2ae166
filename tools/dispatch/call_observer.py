"""The hooks by which a tracer observes calls; tools themselves do not use them.

A dispatcher calls its `on_call` for each call that starts; it returns the call's `CallWatch`.
"""

from collections.abc import Callable, Mapping
from contextvars import Context
from typing import Protocol

from caesura.tools.result import ToolCall, ToolResult

Fact = str | int | float | bool


class CallWatch(Protocol):
    """Observer of one call. Its methods run in the event loop and raise nothing."""

    @property
    def context(self) -> Context:
        """The context variables for the call's task, a copy of the caller's own."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """HTTP headers for requests that the tool sends, which identify the call."""
        ...

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Record an event of the call, such as a retry or a question to a person."""
        ...

    def ended(self, result: ToolResult | None) -> None:
        """Record the end of the call; None: the task that awaited it was cancelled. Called once."""
        ...


OnCall = Callable[[ToolCall], CallWatch]
