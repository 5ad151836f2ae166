"""What the engine did with a turn, as child spans: queue, prefill, decode, and pause.

The engine's records tell every change of a request's state, some time after it. The span of a turn
tells its request when it ends. Once both are there, each stretch of a state becomes a span with the
times of the records: under the turn's span, or, for a pause, under the run's. These spans are sent
and not recorded, since a recording holds the records themselves.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, TracerProvider, set_span_in_context

from caesura.distribution import __version__
from caesura.runtime.recording import conventions as names

if TYPE_CHECKING:
    from caesura.runtime.engine import Backend

MAX_REQUESTS = 4096
"""The most requests that are remembered; the oldest are forgotten first."""
MAX_STRETCHES = 2000
"""The most stretches of a request that wait for their turn's span."""
FIELDS = (
    (names.KV_BLOCKS, "blocks"),
    (names.KV_HOST_BLOCKS, "host"),
    (names.CONTEXT_TOKENS, "tokens"),
)


class _Stretch(NamedTuple):
    """A state of a request from a time to another, in Unix nanoseconds."""

    state: str
    start: int
    end: int
    told: Mapping[str, Any]


class _Turn(NamedTuple):
    """The span of a turn."""

    span: SpanContext
    run: SpanContext | None
    start: int
    end: int


@dataclass(slots=True)
class _Request:
    """What is known of a request of the engine and has not become spans."""

    open: tuple[str, int, Mapping[str, Any]] | None = None
    stretches: list[_Stretch] = field(default_factory=list)
    turns: list[_Turn] = field(default_factory=list)


class EnginePhases(SpanProcessor):
    """Makes the spans of phases with a provider, of which it is a processor.

    `take` is a listener of the engine's records.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer(names.ENGINE_SCOPE, __version__)
        self._requests: OrderedDict[str, _Request] = OrderedDict()
        self._lock = threading.Lock()
        self._watched: WeakSet[Backend] = WeakSet()

    def watch(self, engine: "Backend") -> None:
        """Listen to an engine's records, once for each engine, for as long as it lives."""
        if engine not in self._watched:
            self._watched.add(engine)
            engine.listen(self.take)

    def take(self, rank: int, records: Sequence[Mapping[str, Any]]) -> None:
        """Take in records of the engine of a data-parallel rank."""
        touched: dict[str, None] = {}
        with self._lock:
            for record in records:
                match record.get("kind"):
                    case "lanes":
                        touched.update(dict.fromkeys(self._rows(record)))
                    case "restart":
                        touched.update(dict.fromkeys(self._died(round(record["at"] * 1e9))))
            found = [each for name in touched for each in self._settled(name)]
        self._send(found)

    def on_end(self, span: ReadableSpan) -> None:
        """Take in the span of a turn that has ended."""
        said = span.attributes or {}
        request, context = said.get(names.REQUEST_ID), span.get_span_context()
        if said.get(names.OPERATION) != names.CHAT or not isinstance(request, str):
            return
        if context is None or not context.trace_flags.sampled:
            return
        turn = _Turn(context, span.parent, span.start_time or 0, span.end_time or 0)
        with self._lock:
            self._known(request).turns.append(turn)
            found = self._settled(request)
        self._send(found)

    def _rows(self, record: Mapping[str, Any]) -> list[str]:
        """Note the changes of state of a record; return the requests by their clients' ids."""
        changed = []
        more = [record.get(column) or () for _, column in FIELDS]
        for at, (request, state, seconds) in enumerate(
            zip(record["request"], record["state"], record["at"], strict=True)
        ):
            name = request.rpartition("-")[0] or request
            told = {
                attribute: column[at]
                for (attribute, _), column in zip(FIELDS, more, strict=True)
                if at < len(column)
            }
            self._change(self._known(name), state, round(seconds * 1e9), told)
            changed.append(name)
        return changed

    def _died(self, at: int) -> list[str]:
        """End what was under way when the engine died; return the requests."""
        lost = []
        for name, request in self._requests.items():
            if request.open is not None and request.open[1] < at:
                self._change(request, "lost", at, {})
                lost.append(name)
        return lost

    def _change(self, request: _Request, state: str, at: int, told: Mapping[str, Any]) -> None:
        before = request.open
        if before is not None and before[0] == state:
            request.open = (state, before[1], told)
            return
        if before is not None and len(request.stretches) < MAX_STRETCHES:
            request.stretches.append(_Stretch(before[0], before[1], max(at, before[1]), before[2]))
        request.open = (state, at, told) if state in names.PHASES else None

    def _known(self, name: str) -> _Request:
        known = self._requests.setdefault(name, _Request())
        self._requests.move_to_end(name)
        if len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)
        return known

    def _settled(self, name: str) -> list[tuple[_Stretch, SpanContext]]:
        """Take the stretches of a request whose parents are known, each with its parent."""
        known = self._requests.get(name)
        if known is None or not known.turns:
            return []
        found: list[tuple[_Stretch, SpanContext]] = []
        left = []
        for stretch in known.stretches:
            parent = _parent(stretch, known.turns)
            if parent is None:
                left.append(stretch)
            else:
                found.append((stretch, parent))
        known.stretches = left
        return found

    def _send(self, found: Sequence[tuple[_Stretch, SpanContext]]) -> None:
        for stretch, parent in found:
            attributes = {names.PHASE: stretch.state, **stretch.told}
            if stretch.state in names.KV_STATES:
                attributes[names.KV_STATE] = names.KV_STATES[stretch.state]
            span = self._tracer.start_span(
                names.PHASES[stretch.state],
                set_span_in_context(NonRecordingSpan(parent), Context()),
                attributes=attributes,
                start_time=stretch.start,
            )
            span.end(stretch.end)

    def shutdown(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: what is not sent yet waits for the engine."""
        return True


def _parent(stretch: _Stretch, turns: Sequence[_Turn]) -> SpanContext | None:
    """Return the span that a stretch belongs to; None if that is of a turn that goes on."""
    if stretch.state in names.KV_STATES:
        return turns[-1].run or turns[-1].span
    # The engine tells times of its own process, and its last token comes before the turn's end.
    for turn in reversed(turns):
        if turn.start <= stretch.end and stretch.start <= turn.end:
            return turn.span
    return None
