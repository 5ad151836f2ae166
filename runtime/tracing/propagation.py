"""W3C trace context, in and out."""

from collections.abc import Mapping

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def context_from(headers: Mapping[str, str]) -> Context:
    """The context of the span that a request's headers name, else the current one."""
    carrier = {name.lower(): value for name, value in headers.items()}
    return _PROPAGATOR.extract(carrier, get_current())


def headers_of(span: Span) -> dict[str, str]:
    """Headers that make whoever gets them a child of the span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span))
    return carrier
