"""W3C trace context: reading it from a carrier and writing it to one."""

from collections.abc import Mapping

from opentelemetry.context import Context, get_current
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def context_from(carrier: Mapping[str, str]) -> Context:
    """Return the context of the span that a carrier names, else the current one.

    The carrier is what W3C's headers of a request say, under their names in lower case.
    """
    return _PROPAGATOR.extract(carrier, get_current())


def headers_of(span: Span) -> dict[str, str]:
    """Return the headers that make a receiver's span a child of this span."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, set_span_in_context(span))
    return carrier
