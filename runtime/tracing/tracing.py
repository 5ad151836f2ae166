"""`Tracing`: what the spans of runs are made with."""

import os
from collections.abc import Mapping
from functools import cache
from weakref import WeakValueDictionary

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import TracerProvider

from caesura import __version__
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.recording.spans import RecordAll, SpanEntries
from caesura.runtime.tracing import conventions as names
from caesura.runtime.tracing.content import Content, is_captured
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.propagation import context_from
from caesura.runtime.tracing.run import RunTrace
from caesura.runtime.tracing.setup import GRPC, Receiver
from caesura.tools.dispatch.dispatcher import Dispatcher

NOTHING: Mapping[str, str] = {}


class Tracing:
    """Makes spans with a provider that is ours or the caller's, never with the global one.

    Content is sent if the environment asks for it (`is_captured`), as it is now; `entries` keep it
    if their recorder is to.
    """

    def __init__(
        self,
        provider: TracerProvider,
        exports: Exports | None = None,
        entries: SpanEntries | None = None,
    ) -> None:
        self._tracer = provider.get_tracer(names.SCOPE, __version__)
        keeper = entries if entries is not None and entries.wants_content else None
        self._content = Content(is_captured(os.environ), keeper)
        self.exports = exports
        """Counts what could not be delivered; None where somebody else delivers."""

    def run(
        self,
        dispatcher: Dispatcher,
        model: str,
        agent: str | None = None,
        conversation: str | None = None,
        *,
        response: str | None = None,
        came_with: Mapping[str, str] = NOTHING,
    ) -> RunTrace:
        """Begin the span of a run, and have its dispatcher's calls watched.

        It is a child of the span that `came_with`, a request's headers, names, else of the current
        one. conversation and response are ids.
        """
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: names.VLLM,
            names.REQUEST_MODEL: model,
        }
        given = {
            names.AGENT_NAME: agent,
            names.CONVERSATION_ID: conversation,
            names.RESPONSE_ID: response,
        }
        attributes |= {name: value for name, value in given.items() if value}
        span = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {agent}" if agent else names.INVOKE_AGENT,
            context_from(came_with),
            attributes=attributes,
        )
        trace = RunTrace(self._tracer, span, model, conversation, content=self._content)
        dispatcher.on_call = trace.call
        return trace


@cache
def through(processor: SpanProcessor) -> Tracing:
    """Make spans that go to a processor, with the environment's resource and sampler.

    The processor is shut down when the process ends: there is one provider for each.
    """
    provider = SdkTracerProvider()
    provider.add_span_processor(processor)
    return Tracing(provider, processor if isinstance(processor, Exports) else None)


def recorded(recorder: Recorder, processor: SpanProcessor | None = None) -> Tracing:
    """Make spans that a recorder gets, all of them, and a processor those that are to be sent.

    Whoever shares a recorder shares this too, as long as anybody uses it.
    """
    known = _RECORDED.get((recorder, processor))
    if known is not None:
        return known
    made = _RECORDED[recorder, processor] = _recorded(recorder, processor)
    return made


def _recorded(recorder: Recorder, processor: SpanProcessor | None) -> Tracing:
    provider = SdkTracerProvider(shutdown_on_exit=processor is not None)
    provider.sampler = RecordAll(provider.sampler)
    entries = SpanEntries(recorder)
    provider.add_span_processor(entries)
    if processor is not None:
        provider.add_span_processor(processor)
    return Tracing(provider, processor if isinstance(processor, Exports) else None, entries)


_RECORDED: WeakValueDictionary[tuple[Recorder, SpanProcessor | None], Tracing]
_RECORDED = WeakValueDictionary()


@cache
def recorded_beside(recorder: Recorder, provider: TracerProvider) -> Tracing:
    """Make spans with the caller's provider, and have a recorder get those that are ours.

    A provider that takes no processors leaves the recorder without spans.
    """
    if not isinstance(provider, SdkTracerProvider):
        return Tracing(provider)
    entries = SpanEntries(recorder)
    provider.add_span_processor(entries)
    return Tracing(provider, entries=entries)


def exporter_of(receiver: Receiver) -> SpanExporter:
    """The exporter of a protocol; headers, time-out and the rest come from the environment."""
    if receiver.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=receiver.endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter as HttpSpanExporter,
    )

    return HttpSpanExporter(endpoint=receiver.endpoint)
