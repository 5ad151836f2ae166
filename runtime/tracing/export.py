"""Sending spans in batches from a thread, so that runs never wait. Lost spans are counted.

The SDK's own batch processor does not report a batch's outcome, and logs every lost batch.
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
"""How long the process waits at its end for a receiver that does not answer."""
ABORT_SECONDS = 1.0
EXPORTER_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
)


class Exports(SpanProcessor):
    """A queue of ended spans, and a thread that makes the exporter and sends them.

    The thread calls `make`, since exporters take long to import. The one warning about lost spans
    names `receiver`. The queue obeys `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`
    and `OTEL_BSP_SCHEDULE_DELAY` (milliseconds).
    """

    def __init__(
        self,
        make: Callable[[], SpanExporter],
        receiver: str,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.dropped = 0
        """The number of spans that were not delivered."""
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
        """Whether the thread runs; the first span starts it."""
        return self._thread.is_alive()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Do nothing: only ended spans are sent."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as dropped. This never waits for the receiver."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        why_not = None
        with self._changed:
            if self._stopping:
                why_not = "the process is ending"
            elif len(self._queue) >= self._max_queue:
                why_not = "spans come faster than it takes them"
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
        """Wait until all ended spans are sent or dropped; return False on a time-out."""
        with self._changed:
            goal = self._taken
            self._wake.set()
            return self._changed.wait_for(lambda: self._settled >= goal, timeout_millis / 1000)

    def shutdown(self) -> None:
        """Send the queued spans within some seconds, and end the thread. Idempotent."""
        with self._changed:
            self._stopping = True
            started = self._taken > 0
        self._wake.set()
        if not started:
            return
        self._thread.join(self._patience_seconds)
        if self._thread.is_alive():
            if self._exporter is not None:
                self._exporter.shutdown()  # cancels a wait for a retry
            self._thread.join(ABORT_SECONDS)

    def _flush_at_end(self) -> None:
        if os.getpid() != self._process:
            return  # a forked process has no copy of the thread
        if not self.force_flush(int(self._patience_seconds * 1000)):
            self._patience_seconds = 0.0  # the process waits only once

    def _work(self) -> None:
        """Send spans until the shutdown, in the thread, without tracing the sending itself."""
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        self._overheard.listen()
        try:
            stopping = False
            while not stopping:
                self._wake.wait(self._delay_seconds)
                self._wake.clear()
                stopping = self._stopping  # a stopping queue accepts no more spans
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
        except Exception as error:  # a failing exporter loses only this batch
            self._overheard.reason = f"{type(error).__name__}: {error}"
            return False

    def _settle(self, batch: list[ReadableSpan], sent: bool) -> None:
        if not sent:
            self._warn(self._overheard.reason or "the receiver refuses them")
        with self._changed:
            self._settled += len(batch)
            if not sent:
                self.dropped += len(batch)
            self._changed.notify_all()

    def _warn(self, reason: str) -> None:
        if not self._warned:
            self._warned = True
            LOG.warning(
                "spans are lost on their way to %s: %s. The metric caesura_spans_dropped_total "
                "counts them; this warning is not repeated",
                self._receiver,
                " ".join(reason.split())[:300].rstrip("."),
            )


def _at_the_programs_end(flush: Callable[[], None]) -> None:
    """Register `flush` to run at exit while Python can still start threads.

    Making a gRPC exporter starts threads. Functions of `atexit`, such as the providers' shutdown,
    run too late for that.
    """
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        with suppress(RuntimeError):  # the program is already ending
            register(flush)


class Overheard(logging.Filter):
    """A filter that keeps the exporters' messages about failures, in one thread, out of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        """The first message about the current batch; later messages are about retries."""
        self._thread: int | None = None

    def listen(self) -> None:
        """Begin to filter the messages of the current thread."""
        self._thread = threading.get_ident()
        for name in EXPORTER_LOGGERS:
            logging.getLogger(name).addFilter(self)

    def close(self) -> None:
        """Undo `listen`."""
        for name in EXPORTER_LOGGERS:
            logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for messages of other threads; keep the current one's as the reason."""
        if record.thread != self._thread:
            return True
        self.reason = self.reason or record.getMessage()
        return False


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return a positive whole number of the environment, or the default."""
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and int(text) > 0 else default
