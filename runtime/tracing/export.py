"""Sending spans in batches from a thread, at no cost to runs: what cannot be sent is counted.

The SDK's own batch processor does not tell what became of a batch, and logs each that it loses.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, set_value
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

LOG = logging.getLogger(__name__)

MAX_QUEUE = 2048
MAX_BATCH = 512
DELAY_SECONDS = 5.0
FLUSH_SECONDS = 3.0
"""How long the end of the process waits for a receiver that does not answer."""
ABORT_SECONDS = 1.0
EXPORTER_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
)


class Exports(SpanProcessor):
    """Ended spans on their way to an exporter, which a thread of its own makes and uses.

    `make` is called in that thread, since exporters take long to import; `receiver` is named in
    the one warning that a loss is worth. `OTEL_BSP_MAX_QUEUE_SIZE`,
    `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` and `OTEL_BSP_SCHEDULE_DELAY` (milliseconds) are kept to.
    """

    def __init__(
        self,
        make: Callable[[], SpanExporter],
        receiver: str,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.dropped = 0
        """Spans that were not delivered."""
        self._make = make
        self._receiver = receiver
        self._max_queue = _positive(environ, "OTEL_BSP_MAX_QUEUE_SIZE", MAX_QUEUE)
        most = _positive(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", MAX_BATCH)
        self._max_batch = min(most, self._max_queue)
        delay = _positive(environ, "OTEL_BSP_SCHEDULE_DELAY", int(DELAY_SECONDS * 1000))
        self._delay_seconds = delay / 1000
        self._queue: deque[ReadableSpan] = deque()
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._taken = self._settled = 0
        self._stopping = self._warned = False
        self._exporter: SpanExporter | None = None
        self._overheard = Overheard()
        self._thread = threading.Thread(target=self._work, name="caesura spans", daemon=True)
        self._process = os.getpid()
        self._patience_seconds = FLUSH_SECONDS
        _at_the_programs_end(self._flush_at_end)

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work, which it is from the first span on."""
        return self._thread.is_alive()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing is done at a span's start."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span, or count it as dropped; never waits for the receiver."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        why_not = None
        with self._changed:
            if self._stopping:
                why_not = "no more are taken at the end of the process"
            elif len(self._queue) >= self._max_queue:
                why_not = "they come faster than it takes them"
            if why_not is not None:
                self.dropped += 1
            else:
                self._queue.append(span)
                self._taken += 1
                if self._taken == 1:
                    self._thread.start()
            full = len(self._queue) >= self._max_batch
        if why_not is not None:
            self._warn(why_not)
        if full:
            self._wake.set()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Wait until what has ended so far is sent or dropped; False if that took too long."""
        with self._changed:
            goal = self._taken
            self._wake.set()
            return self._changed.wait_for(lambda: self._settled >= goal, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send what there is, for some seconds at most, and end the thread; idempotent."""
        with self._changed:
            self._stopping = True
            started = self._taken > 0
        self._wake.set()
        if not started:
            return
        self._thread.join(self._patience_seconds)
        if self._thread.is_alive():
            if self._exporter is not None:
                self._exporter.shutdown()  # breaks off what waits for another try
            self._thread.join(ABORT_SECONDS)

    def _flush_at_end(self) -> None:
        if os.getpid() != self._process:
            return  # a fork, without our thread
        if not self.force_flush(int(self._patience_seconds * 1000)):
            self._patience_seconds = 0.0  # it has been waited for once

    def _work(self) -> None:
        """The thread: what goes out is not itself traced."""
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        self._overheard.listen()
        try:
            stopping = False
            while not stopping:
                self._wake.wait(self._delay_seconds)
                self._wake.clear()
                stopping = self._stopping  # from then on nothing is taken
                while batch := self._batch():
                    self._settle(batch, self._export(batch))
            if self._exporter is not None:
                self._exporter.shutdown()
        finally:
            self._overheard.close()

    def _batch(self) -> list[ReadableSpan]:
        with self._changed:
            return [self._queue.popleft() for _ in range(min(len(self._queue), self._max_batch))]

    def _export(self, batch: list[ReadableSpan]) -> bool:
        self._overheard.reason = ""
        try:
            if self._exporter is None:
                self._exporter = self._make()
            return self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # an exporter that breaks loses its batch and nothing else
            self._overheard.reason = f"{type(error).__name__}: {error}"
            return False

    def _settle(self, batch: list[ReadableSpan], sent: bool) -> None:
        if not sent:
            self._warn(self._overheard.reason or "it does not take them")
        with self._changed:
            self._settled += len(batch)
            if not sent:
                self.dropped += len(batch)
            self._changed.notify_all()

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            LOG.warning(
                "spans are lost on their way to %s: %s. They are counted, in "
                "caesura_spans_dropped_total, and this is not said again",
                self._receiver,
                " ".join(reason.split())[:300].rstrip("."),
            )


def _at_the_programs_end(flush: Callable[[], None]) -> None:
    """Have spans sent while threads can still be started: making a gRPC exporter takes some.

    What `atexit` calls, the shutdown of providers, comes too late for that.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # the program is ending already
            register(flush)


class Overheard(logging.Filter):
    """Keeps what exporters log of each failure, in this one thread, out of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        """The first thing that was said of the batch under way: what comes later is of retries."""
        self._thread: int | None = None

    def listen(self) -> None:
        """Begin, in the current thread."""
        self._thread = threading.get_ident()
        for name in EXPORTER_LOGGERS:
            logging.getLogger(name).addFilter(self)

    def close(self) -> None:
        """Undo `listen`."""
        for name in EXPORTER_LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass what other threads say."""
        if record.thread != self._thread:
            return True
        self.reason = self.reason or record.getMessage()
        return False


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    """A setting of the environment; what is no positive number counts as not given."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else default
