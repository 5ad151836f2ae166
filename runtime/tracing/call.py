"""The span of one tool call."""

import time
from collections.abc import Mapping
from contextvars import Context, copy_context
from functools import cached_property

from opentelemetry.context import attach
from opentelemetry.trace import Span, set_span_in_context

from caesura.runtime.recording import conventions as names
from caesura.runtime.tracing.content import Content, cut
from caesura.runtime.tracing.propagation import headers_of
from caesura.runtime.tracing.status import fail
from caesura.tools.context import Fact
from caesura.tools.dispatcher import ToolCall, ToolResult


class CallTrace:
    """The span of one call, updated as its `CallWatch`; the tool's own spans become children."""

    def __init__(self, span: Span, call: ToolCall, *, content: Content) -> None:
        self._span = span
        self._content = content
        self._wanted = content.is_wanted(span)
        self._asked_at: float | None = None
        self._person_seconds = 0.0
        self.context: Context = copy_context()
        self.context.run(attach, set_span_in_context(span))
        if self._wanted:
            content.set(span, names.TOOL_ARGUMENTS, cut(call.arguments))

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """W3C trace context for the tool's own requests, built on demand: most tools send none."""
        return headers_of(self._span)

    def mark(self, name: str, facts: Mapping[str, Fact]) -> None:
        """Add an event to the span, and measure how long a person takes."""
        named = {f"{names.MARK}{name.partition('.')[0]}.{key}": facts[key] for key in facts}
        self._span.add_event(f"{names.MARK}{name}", named)
        if name == "person.asked":
            self._asked_at = time.monotonic()
        elif name == "person.settled":
            self._person_answered()

    def ended(self, result: ToolResult | None) -> None:
        """End the span with the call's result; None means that the call was cancelled."""
        span = self._span
        self._person_answered()
        if self._person_seconds:
            span.set_attribute(names.PERSON_SECONDS, self._person_seconds)
        if result is None:
            fail(span, names.CANCELLED)
        else:
            span.set_attribute(names.TOOL_ATTEMPTS, result.attempts)
            if result.artifacts:
                made = [artifact.name for artifact in result.artifacts]
                span.set_attribute(names.TOOL_ARTIFACTS, made)
            if self._wanted:
                self._content.set(span, names.TOOL_RESULT, cut(result.content))
            if result.error is not None:
                fail(span, result.error)
        span.end()

    def _person_answered(self) -> None:
        """Add the time of a wait for a person that has ended."""
        if self._asked_at is not None:
            self._person_seconds += time.monotonic() - self._asked_at
            self._asked_at = None
