"""`Tracing`: makes the spans of runs."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from weakref import WeakValueDictionary

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import TracerProvider

from caesura.distribution import __version__
from caesura.runtime.engine import Backend
from caesura.runtime.receiver import GRPC, Receiver
from caesura.runtime.recording import conventions as names
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.tracing.content import Content, is_captured
from caesura.runtime.tracing.dialects import Speaking, dialects_in
from caesura.runtime.tracing.differences import Conversations, Histories
from caesura.runtime.tracing.export import Exports
from caesura.runtime.tracing.phases import EnginePhases
from caesura.runtime.tracing.propagation import context_from
from caesura.runtime.tracing.run import RunTrace
from caesura.runtime.tracing.spans import RecordAll, SpanEntries
from caesura.runtime.tracing.who import NO_IDS, NOBODY, RunIds, Who

NOTHING: Mapping[str, str] = {}
UNKNOWN = "unknown_service"
"""What OpenTelemetry calls a service without a name, and the beginning of such names."""


class Tracing:
    """Makes spans with Caesura's own or the caller's provider, never with the global one.

    The spans hold content if the environment requests it (`is_captured`) at construction.
    Otherwise `entries` keep the content, if their recorder wants it.
    """

    def __init__(
        self,
        provider: TracerProvider,
        exports: Exports | None = None,
        entries: SpanEntries | None = None,
        phases: EnginePhases | None = None,
    ) -> None:
        self._tracer = provider.get_tracer(names.SCOPE, __version__)
        keeper = entries if entries is not None and entries.wants_content else None
        self._content = Content(is_captured(os.environ), keeper)
        self._conversations = Conversations()
        self.exports = exports
        """Counts lost spans; None if the caller's own provider or processor sends them."""
        self._phases = phases
        self.link: Callable[[str], str] | None = None
        """Returns the address on the page of the run with an answer's id, empty without one."""

    def watch(self, engine: Backend) -> None:
        """Make spans of the phases of an engine's turns, where spans are sent."""
        if self._phases is not None:
            self._phases.watch(engine)

    def run(
        self,
        model: str,
        agent: str | None = None,
        conversation_id: str | None = None,
        *,
        ids: RunIds = NO_IDS,
        came_with: Mapping[str, str] = NOTHING,
        who: Who = NOBODY,
    ) -> RunTrace:
        """Begin the span of a run; `RunTrace.call` observes its calls.

        The span's parent is the one that the request headers `came_with` name, else the current
        span.
        """
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.PROVIDER: names.VLLM,
            names.REQUEST_MODEL: model,
        }
        given = {
            names.AGENT_NAME: agent,
            names.CONVERSATION_ID: conversation_id,
            names.RESPONSE_ID: ids.response,
            names.REQUEST_ID: ids.request,
        }
        attributes |= {name: value for name, value in given.items() if value}
        attributes |= who.attributes()
        if self.link is not None and ids.response and (url := self.link(ids.response)):
            attributes[names.URL] = url
        span = self._tracer.start_span(
            f"{names.INVOKE_AGENT} {agent or model}",
            context_from(came_with),
            attributes=attributes,
        )
        histories = Histories(self._conversations, who.owner)
        told = (self._tracer, span, model, conversation_id)
        return RunTrace(*told, content=self._content, histories=histories)


@cache
def through(processor: SpanProcessor) -> Tracing:
    """Return a `Tracing` for a processor, with the environment's resource and sampler.

    Each processor has one provider, which shuts it down when the process ends.
    """
    provider = SdkTracerProvider(resource=service())
    provider.add_span_processor(processor)
    exports = processor if isinstance(processor, Exports) else None
    return Tracing(provider, exports, phases=phases_of(provider))


@cache
def phases_of(provider: TracerProvider) -> EnginePhases | None:
    """Return what makes spans of an engine's phases with a provider, if that takes processors."""
    if not isinstance(provider, SdkTracerProvider):
        return None
    phases = EnginePhases(provider)
    provider.add_span_processor(phases)
    return phases


def beside(provider: TracerProvider) -> Tracing:
    """Return a `Tracing` with the caller's provider."""
    return Tracing(provider, phases=phases_of(provider))


def recorded(recorder: Recorder, processor: SpanProcessor | None = None) -> Tracing:
    """Return a `Tracing` that sends all spans to a recorder, and sampled ones to a processor.

    Calls with the same recorder and processor return the same object while it is in use.
    """
    known = _RECORDED.get((recorder, processor))
    if known is not None:
        return known
    made = _RECORDED[recorder, processor] = _recorded(recorder, processor)
    return made


def _recorded(recorder: Recorder, processor: SpanProcessor | None) -> Tracing:
    provider = SdkTracerProvider(resource=service(), shutdown_on_exit=processor is not None)
    provider.sampler = RecordAll(provider.sampler)
    entries = SpanEntries(recorder)
    provider.add_span_processor(entries)
    if processor is None:
        return Tracing(provider, entries=entries)
    provider.add_span_processor(processor)
    exports = processor if isinstance(processor, Exports) else None
    return Tracing(provider, exports, entries, phases_of(provider))


_RECORDED: WeakValueDictionary[tuple[Recorder, SpanProcessor | None], Tracing]
_RECORDED = WeakValueDictionary()


@cache
def recorded_beside(recorder: Recorder, provider: TracerProvider) -> Tracing:
    """Return a `Tracing` with the caller's provider that also records Caesura's spans.

    A provider that accepts no processors leaves the recorder without spans.
    """
    if not isinstance(provider, SdkTracerProvider):
        return Tracing(provider)
    entries = SpanEntries(recorder)
    provider.add_span_processor(entries)
    return Tracing(provider, entries=entries, phases=phases_of(provider))


def service() -> Resource:
    """Return the resource of the environment; where that names no service, it is Caesura."""
    given = Resource.create()
    if not str(given.attributes.get(SERVICE_NAME, UNKNOWN)).startswith(UNKNOWN):
        return given
    return given.merge(Resource({SERVICE_NAME: names.SCOPE, SERVICE_VERSION: __version__}))


def exporter_of(receiver: Receiver) -> SpanExporter:
    """Return the exporter of a protocol, whose spans speak the environment's dialects too.

    Headers and the time-out come from the environment.
    """
    dialects = dialects_in(os.environ)
    plain = _plain_exporter(receiver)
    return Speaking(plain, dialects) if dialects else plain


def _plain_exporter(receiver: Receiver) -> SpanExporter:
    if receiver.protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=receiver.endpoint)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
        OTLPSpanExporter as HttpSpanExporter,
    )

    return HttpSpanExporter(endpoint=receiver.endpoint)
