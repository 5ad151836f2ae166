"""Spans of runs as entries: written when they end, and those that last when they begin as well."""

from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, TraceState
from opentelemetry.util.types import Attributes

from caesura.runtime.recording.entries import without_content
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.tracing import conventions as names
from caesura.scheduler.records import SpanEvent, SpanRecord

LASTING = (names.INVOKE_AGENT, names.EXECUTE_TOOL)
"""What is shown while it is under way; a turn of the model is seen in the engine's records."""


class SpanEntries(SpanProcessor):
    """Hands the spans that this package makes to a recorder.

    What was said comes by `keep`, beside the spans: a span's attributes go wherever spans are
    sent, and the recorder's content is to stay in its file.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kept: dict[int, dict[str, str]] = {}

    @property
    def wants_content(self) -> bool:
        """Whether `keep` is to be told what is said."""
        return self._recorder.content

    def keep(self, span: Any, name: str, text: str) -> None:
        """Have an attribute recorded that the span itself is not given."""
        self._kept.setdefault(span.get_span_context().span_id, {})[name] = text

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Write down that a run or a call has begun."""
        if _is_ours(span) and (span.attributes or {}).get(names.OPERATION) in LASTING:
            self._recorder.add([record_of(span).entry()])

    def on_end(self, span: ReadableSpan) -> None:
        """Write down a span."""
        if not _is_ours(span):
            return
        entry = record_of(span).entry()
        entry["attributes"] |= self._kept.pop(_id_of(span), {})
        self._recorder.add([entry if self._recorder.content else without_content(entry)])

    def shutdown(self) -> None:
        """The recorder is its owner's to close."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True


def record_of(span: ReadableSpan) -> SpanRecord:
    """Return a span as a record; times in Unix seconds, `end` None while it is open."""
    context, parent = span.get_span_context(), span.parent
    return SpanRecord(
        trace=f"{context.trace_id:032x}" if context else "",
        span=f"{_id_of(span):016x}",
        name=span.name,
        start=(span.start_time or 0) / 1e9,
        end=None if span.end_time is None else span.end_time / 1e9,
        parent=f"{parent.span_id:016x}" if parent else None,
        status=span.status.status_code.name.lower(),
        message=span.status.description or "",
        attributes=dict(span.attributes or {}),
        events=tuple(
            SpanEvent(event.name, event.timestamp / 1e9, dict(event.attributes or {}))
            for event in span.events
        ),
    )


def _id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.span_id if context else 0


def _is_ours(span: ReadableSpan) -> bool:
    """Whether it is one of Caesura's: a caller's provider has others too."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == names.SCOPE


class RecordAll(Sampler):
    """Has every span made, also one that is not to be sent: the recorder takes them all."""

    def __init__(self, sent: Sampler) -> None:
        self._sent = sent

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Any = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Make the span; it is sent if the other sampler says so."""
        result = self._sent.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        if result.decision is not Decision.DROP:
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        """Name it."""
        return f"RecordAll({self._sent.get_description()})"
