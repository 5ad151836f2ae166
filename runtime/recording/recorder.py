"""`Recorder`: takes entries in microseconds, and writes them in a thread of its own.

What cannot be written is counted, and a `gap` entry stands for it when writing works again. Nobody
who hands in entries ever waits, and no fault of the disk reaches them.
"""

import json
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from caesura.runtime.errors import CaesuraError
from caesura.runtime.recording.database import is_broken
from caesura.runtime.recording.entries import Entry, Row, gap, row_of, size_of, without_content
from caesura.runtime.recording.store import Store
from caesura.runtime.recording.subscription import Subscription

LOG = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
"""How long entries are collected: a live page is that far behind."""
MAX_QUEUE = 16_384
MAX_QUEUE_BYTES = 64 * 2**20
"""What has been handed in and not been taken by the thread, which may have to wait for the disk."""
MAX_PENDING_BYTES = 8 * 2**20
"""What is kept in memory while the file cannot be written."""
MAX_ENTRY_BYTES = 2**20
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0
CLOSE_SECONDS = 5.0

OVERLOADED = "entries came faster than they could be written"
TOO_LARGE = "an entry was too large, or no JSON"


class Recorder:
    """One recording under way. `close` it, or use it as a context manager.

    `source` is `serve` or `sdk`; `about` are free facts. `content` says that what is said may be
    recorded too: it is off, and then no text of a user, a model or a tool is. `retry_seconds` is
    how long a file that could not be written is left alone at first.
    """

    def __init__(
        self,
        store: Store | None = None,
        title: str = "program",
        source: str = "sdk",
        about: Mapping[str, Any] | None = None,
        *,
        content: bool = False,
        max_queue: int = MAX_QUEUE,
        retry_seconds: float = FIRST_RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store or Store()
        self.content = content
        self.recording: int | None = None
        """The number of the recording in the store, once it has begun."""
        self.written = 0
        """Entries that are in the store."""
        self.dropped = 0
        """Entries that were lost."""
        self._title, self._source, self._about = title, source, about
        self._started = clock()
        self._clock = clock
        self._max_queue = max_queue
        self._first_retry = self._retry = retry_seconds
        self._retry_at = 0.0
        # Re-entrant: what is collected as garbage while it is held may end a span.
        self._lock = threading.RLock()
        self._queue: deque[Entry] = deque()
        self._queue_bytes = 0
        self._lost, self._why = 0, ""
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._failing = False
        self._subscriptions: set[Subscription] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="caesura recorder", daemon=True)
        self._begin()
        self._thread.start()

    def add(self, entries: Sequence[Entry]) -> None:
        """Take entries, from any thread; they are not to be changed any more. Never waits."""
        with self._lock:
            for number, entry in enumerate(entries):
                full = len(self._queue) >= self._max_queue or self._queue_bytes >= MAX_QUEUE_BYTES
                if full or self._stop.is_set():
                    self._lose(len(entries) - number, OVERLOADED)
                    break
                self._queue.append(entry)
                self._queue_bytes += size_of(entry)
        if not self._wake.is_set():
            self._wake.set()

    def subscribe(self, subscription: Subscription) -> None:
        """Have a watcher told of what is written from now on."""
        with self._lock:
            self._subscriptions.add(subscription)
            closed = self._stop.is_set()
        if closed:
            subscription.finish()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Tell it no more."""
        with self._lock:
            self._subscriptions.discard(subscription)

    def dismiss(self) -> None:
        """Tell all watchers that nothing comes any more; the recording goes on."""
        with self._lock:
            watching, self._subscriptions = self._subscriptions, set()
        for each in watching:
            each.finish()

    def close(self) -> None:
        """Write what there is, for some seconds at most, and end the recording. Idempotent."""
        self._stop.set()
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)
        self.dismiss()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the recording."""
        self.close()

    # -- in the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._first_retry if self._failing else None)
            self._stop.wait(FLUSH_SECONDS)
            self._wake.clear()
            self._flush()
        self._retry_at = 0.0
        self._flush()
        if not self._failing and self.recording is not None:
            self._try(lambda: self.store.end(int(self.recording or 0)))
        self.dropped += sum(row.kind != "gap" for row in self._pending)
        self.store.close()

    def _flush(self) -> None:
        self._encode()
        if not self._pending or time.monotonic() < self._retry_at:
            return
        if self._begin() and self._try(self._write):
            if self._failing:
                LOG.info("traces are recorded again, in %s", self.store.path)
            self._failing, self._retry = False, self._first_retry

    def _encode(self) -> None:
        """Take what has been handed in; the gap that stands for losses comes behind it."""
        with self._lock:
            taken, self._queue, self._queue_bytes = self._queue, deque(), 0
            lost, why, self._lost = self._lost, self._why, 0
        before = lost
        for entry in taken:
            if self._failing and self._pending_bytes > MAX_PENDING_BYTES:
                lost, why = lost + 1, why or f"{self.store.path.name} could not be written"
                continue
            try:
                row = row_of(entry)
                if len(row.body) > MAX_ENTRY_BYTES:
                    row = row_of(without_content(entry))
                if len(row.body) > MAX_ENTRY_BYTES:
                    raise ValueError(TOO_LARGE)
            except Exception:  # an odd entry costs itself, and never the thread
                lost, why = lost + 1, TOO_LARGE
                continue
            self._pending.append(row)
            self._pending_bytes += len(row.body)
        if lost:
            self._note_gap(lost, why)
            with self._lock:
                self.dropped += lost - before

    def _note_gap(self, lost: int, why: str) -> None:
        """Put a gap behind what is pending, or make the one that is there larger."""
        last = self._pending[-1] if self._pending else None
        if last is not None and last.kind == "gap":
            self._pending_bytes -= len(last.body)
            lost += json.loads(self._pending.pop().body)["lost"]
        self._pending.append(row_of(gap(self._clock(), lost, why)))
        self._pending_bytes += len(self._pending[-1].body)

    def _begin(self) -> bool:
        """See to it that there is a recording in the file, which may have been taken away."""
        if self.recording is not None and self.store.is_same():
            return True

        def begin() -> None:
            self.store.close()
            self.dismiss()  # whoever watched the one that is gone
            self.recording = self.store.begin(
                self._title, self._source, self._about, content=self.content, started=self._started
            )

        return self._try(begin)

    def _write(self) -> None:
        assert self.recording is not None
        while self._pending:
            batch, size = 0, 0
            for row in self._pending:
                size += len(row.body)
                if batch and size > self.store.bounds.batch_bytes:
                    break
                batch += 1
            rows = self._pending[:batch]
            first = self.store.append(self.recording, rows)
            del self._pending[:batch]
            self._pending_bytes -= sum(len(row.body) for row in rows)
            self.written += batch
            self._publish([(first + index, row.body) for index, row in enumerate(rows)])

    def _publish(self, page: list[tuple[int, str]]) -> None:
        with self._lock:
            watching = list(self._subscriptions)
        for each in watching:
            if not each.offer(page):
                self.unsubscribe(each)

    def _try(self, work: Callable[[], object]) -> bool:
        """Do it; what goes wrong is told once, and tried again after a while."""
        try:
            work()
            return True
        except (sqlite3.Error, OSError, CaesuraError) as error:
            self._failed(error)
            return False

    def _failed(self, error: Exception) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            self.recording = None  # it was deleted: the next try begins another one
        if not self._failing:
            LOG.warning(
                "traces are not recorded for now, which disturbs nothing else: %s: %s",
                self.store.path,
                error,
            )
        self._failing = True
        self._retry_at = time.monotonic() + self._retry
        self._retry = min(2 * self._retry, LAST_RETRY_SECONDS)
        if is_broken(error):
            self._move_aside()

    def _move_aside(self) -> None:
        try:
            aside = self.store.move_aside()
        except OSError as error:
            LOG.warning("the broken file %s cannot be moved: %s", self.store.path, error)
            return
        LOG.warning("the broken file of traces is now %s, and a new one is begun", aside)
        self.recording, self._retry_at = None, 0.0

    def _lose(self, count: int, why: str) -> None:
        self._lost += count
        self._why = why
        self.dropped += count
