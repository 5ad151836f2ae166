"""Spans of runs as entries: written at their end, and the long ones at their start as well."""

from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, TraceState
from opentelemetry.util.types import Attributes

from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.entries import Entry, without_content
from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.records import SpanRecord

LASTING = (names.INVOKE_AGENT, names.EXECUTE_TOOL)
"""The operations that are shown while under way; the engine's records show the turns."""


class SpanEntries(SpanProcessor):
    """Passes the spans that this package makes to a recorder.

    The content of messages comes through `keep`, not through the span's attributes. Attributes
    are sent to every exporter, while the recorder's content must stay in its file.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._kept: dict[int, dict[str, str]] = {}

    @property
    def wants_content(self) -> bool:
        """Whether `keep` should receive the content of messages."""
        return self._recorder.content

    def keep(self, span: Any, name: str, text: str) -> None:
        """Record an attribute without adding it to the span itself."""
        self._kept.setdefault(span.get_span_context().span_id, {})[name] = text

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Record that a run or a call has begun."""
        if _is_ours(span) and (span.attributes or {}).get(names.OPERATION) in LASTING:
            self._recorder.add([entry_of(span)])

    def on_end(self, span: ReadableSpan) -> None:
        """Record an ended span."""
        if not _is_ours(span):
            return
        entry = entry_of(span)
        entry["attributes"] |= self._kept.pop(_id_of(span), {})
        self._recorder.add([entry if self._recorder.content else without_content(entry)])

    def shutdown(self) -> None:
        """Do nothing: the caller closes the recorder."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: the processor buffers no spans."""
        return True


def entry_of(span: ReadableSpan) -> Entry:
    """Return a span as the entry of a `SpanRecord`; times in Unix seconds, `end` None while open.

    It is written here field by field, since runs pay for it in their event loop.
    """
    context, parent = span.get_span_context(), span.parent
    return {
        "kind": SpanRecord.kind,
        "trace": f"{context.trace_id:032x}" if context else "",
        "span": f"{_id_of(span):016x}",
        "name": span.name,
        "start": (span.start_time or 0) / 1e9,
        "end": None if span.end_time is None else span.end_time / 1e9,
        "parent": f"{parent.span_id:016x}" if parent else None,
        "status": span.status.status_code.name.lower(),
        "message": span.status.description or "",
        "attributes": dict(span.attributes or {}),
        "events": [
            {
                "name": each.name,
                "at": each.timestamp / 1e9,
                "attributes": dict(each.attributes or {}),
            }
            for each in span.events
        ],
    }


def _id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    return context.span_id if context else 0


def _is_ours(span: ReadableSpan) -> bool:
    """Return whether Caesura made the span: a caller's provider has other spans too."""
    scope = span.instrumentation_scope
    return scope is not None and scope.name == names.SCOPE


class RecordAll(Sampler):
    """A sampler that records every span, including those that the other sampler drops."""

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
        """Return the other sampler's decision, with DROP replaced by RECORD_ONLY."""
        result = self._sent.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        if result.decision is not Decision.DROP:
            return result
        return SamplingResult(Decision.RECORD_ONLY, attributes, result.trace_state)

    def get_description(self) -> str:
        """Return the sampler's name."""
        return f"RecordAll({self._sent.get_description()})"
