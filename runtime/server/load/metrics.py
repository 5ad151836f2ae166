"""The server's metrics, named `caesura_*`; `/metrics` adds vLLM's metrics of this process."""

from collections.abc import Container, Iterator, Mapping
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from caesura.intercept.calls.events import FollowUpReport, TurnEnded
from caesura.runtime.events import ToolReturned
from caesura.scheduler.histories import kind_of
from caesura.tools.limits import CallStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    120,
    300,
)


class Drops(Protocol):
    """A counter of the spans that were not delivered."""

    @property
    def dropped(self) -> int:
        """The number of lost spans so far."""
        ...


class Records(Protocol):
    """A counter of the trace entries that were written, and of those that were lost."""

    @property
    def written(self) -> int:
        """The number of entries in the store."""
        ...

    @property
    def dropped(self) -> int:
        """The number of lost entries."""
        ...


class Metrics:
    """The metrics of one application, in a registry of its own: a process may hold several."""

    def __init__(
        self,
        spans: Drops | None = None,
        records: Records | None = None,
        tools: Mapping[str, CallStats] | None = None,
    ) -> None:
        """Create them; `tools` are the statistics of the tools' calls."""
        self._registry = CollectorRegistry()
        if tools is not None:
            self._registry.register(_GivenUp(tools))
        if spans is not None:
            self._registry.register(_Dropped(spans))
        if records is not None:
            self._registry.register(_Recorded(records))
        self.requests = self._counter("requests", "Answered requests.", "route", "status")
        self.in_flight = Gauge(
            "caesura_requests_in_flight", "Chat completions under way.", registry=self._registry
        )
        self.queue_seconds = Gauge(
            "caesura_predicted_queue_seconds",
            "How long a new request is predicted to wait for the engine.",
            registry=self._registry,
        )
        self.first_token = self._histogram(
            "time_to_first_token_seconds", "From a chat completion's arrival to its first output."
        )
        self.duration = self._histogram("request_seconds", "How long requests took.", "route")
        self._tool_calls = self._counter(
            "tool_calls", "Tool calls that the server ran.", "tool", "outcome"
        )
        self._tool_seconds = self._histogram(
            "tool_seconds", "How long the server's tools took.", "tool"
        )
        self._pauses = self._counter("pauses", "Requests paused inside the engine.")
        self._resumes = self._counter(
            "resumes", "Requests that came back, by what happened to their KV cache.", "handling"
        )
        self._pause_seconds = self._histogram(
            "pause_seconds", "From a pause to the tools' results."
        )
        self._queue_seconds = self._histogram(
            "resume_queue_seconds", "From the tools' results to the step that resumed the request."
        )
        self._follow_ups = self._counter(
            "followups",
            "Requests whose history holds an earlier answer, by how it became tokens.",
            "outcome",
            "why",
            "field",
        )
        self._spliced_tokens = self._counter(
            "spliced_tokens", "Tokens of earlier answers and their prompts that were not rendered."
        )
        self._prompt_tokens = self._counter(
            "prompt_tokens", "Tokens that clients and tools appended."
        )
        self._completion_tokens = self._counter("completion_tokens", "Tokens decoded.")
        self._cached_tokens = self._counter(
            "cached_tokens", "Tokens of context that were in the KV cache when a turn began."
        )

    def include(self, collector: Collector) -> None:
        """Add another part's metrics to these."""
        self._registry.register(collector)

    def join(self, registry: CollectorRegistry) -> None:
        """Make these metrics a part of another registry, for a server that shows that one."""
        registry.register(self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"caesura_{name}", about, labels, registry=self._registry)

    def _histogram(self, name: str, about: str, *labels: str) -> Histogram:
        return Histogram(
            f"caesura_{name}", about, labels, buckets=_SECONDS, registry=self._registry
        )

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request, and how long it took."""
        self.requests.labels(route, str(status)).inc()
        self.duration.labels(route).observe(seconds)

    def tool_returned(self, returned: ToolReturned, known_tools: Container[str]) -> None:
        """Count a call of the server's. Tool names that the model made up share one label."""
        call, result = returned.call, returned.result
        tool = call.name if call.name in known_tools else "unknown"
        self._tool_calls.labels(tool, result.error or "ok").inc()
        self._tool_seconds.labels(tool).observe(result.seconds)

    def turn_ended(self, turn: TurnEnded, pausing: bool) -> None:
        """Count a turn of a run."""
        self._prompt_tokens.inc(turn.prompt_tokens)
        self._completion_tokens.inc(turn.completion_tokens)
        self._cached_tokens.inc(turn.cached_tokens)
        if turn.reason == "call" and pausing:
            self._pauses.inc()
        if turn.follow_up is not None:
            self.count_follow_up(turn.follow_up)
        if turn.resume is not None:
            self._resumes.labels(turn.resume.handling).inc()
            self._pause_seconds.observe(turn.resume.pause_seconds)
            self._queue_seconds.observe(turn.resume.queue_seconds)

    def count_follow_up(self, report: FollowUpReport) -> None:
        """Count a request whose history holds an earlier answer."""
        self._follow_ups.labels(report.outcome, report.why, kind_of(report.field)).inc()
        self._spliced_tokens.inc(report.spliced_tokens)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format, with the process's default registry."""
        return generate_latest(REGISTRY) + generate_latest(self._registry)


class _Dropped(Collector):
    """The counter of lost spans, which the exporter keeps."""

    def __init__(self, spans: Drops) -> None:
        self._spans = spans

    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Spans of traces that could not be delivered."
        yield CounterMetricFamily("caesura_spans_dropped", about, value=self._spans.dropped)


class _Recorded(Collector):
    """The counters of trace entries, which a recorder keeps."""

    def __init__(self, records: Records) -> None:
        self._records = records

    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Entries of traces that were recorded."
        yield CounterMetricFamily("caesura_trace_entries", about, value=self._records.written)
        about = "Entries of traces that were lost: the disk was full, or they came too fast."
        yield CounterMetricFamily(
            "caesura_trace_entries_dropped", about, value=self._records.dropped
        )


class _GivenUp(Collector):
    """The counter of tools' runs that did not end when they were cancelled."""

    def __init__(self, tools: Mapping[str, CallStats]) -> None:
        self._tools = tools

    def collect(self) -> Iterator[CounterMetricFamily]:
        about = "Runs of tools that went on although they were cancelled."
        family = CounterMetricFamily("caesura_tool_calls_given_up", about, labels=["tool"])
        for name, stats in list(self._tools.items()):
            if stats.given_up:
                family.add_metric([name], stats.given_up)
        yield family
