"""`Recorder`: accepts entries within microseconds, and writes them in a thread of its own.

The recorder counts entries that it cannot write. A `gap` entry stands for them once writing works
again. Callers that add entries never wait, and never see an error of the disk.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from caesura.runtime.errors import CaesuraError
from caesura.runtime.recording.backlog import MAX_ROWS, Backlog
from caesura.runtime.recording.entries import Entry, Row, row_of, without_content
from caesura.runtime.recording.storage.database import is_broken
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.recording.subscription import Subscription

LOG = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
"""The time for which entries are collected. A live page is that far behind."""
MAX_ENTRY_BYTES = 2**20
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 60.0
CLOSE_SECONDS = 5.0

OVERLOADED = "entries came faster than they could be written"
TOO_LARGE = "an entry was too large, or could not be written as JSON"


class Recorder:
    """One recording under way. `close` it, or use it as a context manager.

    `source` is `serve` or `sdk`, and `about` holds free facts. With `content`, the recorder also
    stores the texts of users, models and tools; by default it stores none of them.
    `retry_seconds` is the first delay before the recorder retries a failed write.
    """

    def __init__(
        self,
        store: Store | None = None,
        title: str = "program",
        source: str = "sdk",
        about: Mapping[str, Any] | None = None,
        *,
        content: bool = False,
        max_queue: int = MAX_ROWS,
        retry_seconds: float = FIRST_RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store or Store()
        self.content = content
        self.recording: int | None = None
        """The recording's number in the store, or None before it has begun."""
        self.written = 0
        """The number of entries in the store."""
        self._title, self._source, self._about = title, source, about
        self._started = clock()
        self._clock = clock
        self._backlog = Backlog(max_queue)
        self._first_retry = self._retry = retry_seconds
        self._retry_at = 0.0
        self._failing = False
        # Re-entrant, since a garbage collection under the lock may end a subscription.
        self._lock = threading.RLock()
        self._subscriptions: set[Subscription] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="caesura recorder", daemon=True)
        self._begin()
        self._thread.start()

    @property
    def dropped(self) -> int:
        """The number of lost entries."""
        return self._backlog.dropped

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries, from any thread. This never waits and never raises."""
        rows = [row for row in map(_row_of, entries) if row is not None]
        if odd := len(entries) - len(rows):
            self._backlog.lose(odd, TOO_LARGE)
        why = f"{self.store.path.name} could not be written" if self._failing else OVERLOADED
        self._backlog.put(rows, why)
        if not self._wake.is_set():
            self._wake.set()

    def subscribe(self, subscription: Subscription) -> None:
        """Send a subscription all entries that are written from now on."""
        with self._lock:
            self._subscriptions.add(subscription)
            closed = self._stop.is_set()
        if closed:
            subscription.finish()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Send a subscription no further entries."""
        with self._lock:
            self._subscriptions.discard(subscription)

    def dismiss(self) -> None:
        """Finish all subscriptions; the recording continues."""
        with self._lock:
            watching, self._subscriptions = self._subscriptions, set()
        for each in watching:
            each.finish()

    def close(self) -> None:
        """Write the remaining entries within `CLOSE_SECONDS` and end the recording. Idempotent."""
        self._backlog.close()
        self._stop.set()
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_SECONDS)
        self.dismiss()

    def __enter__(self) -> Self:
        """Return the recorder."""
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
        self._backlog.abandon()
        self.store.close()

    def _flush(self) -> None:
        self._backlog.close_gap(self._clock())
        if not self._backlog or time.monotonic() < self._retry_at:
            return
        if self._begin() and self._try(self._write):
            if self._failing:
                LOG.info("traces are recorded again, in %s", self.store.path)
            self._failing, self._retry = False, self._first_retry

    def _begin(self) -> bool:
        """Begin a recording unless the file holds it; return False if that fails.

        The file may have been deleted or replaced since the last write.
        """
        if self.recording is not None and self.store.is_same():
            return True

        def begin() -> None:
            self.store.close()
            self.dismiss()  # ends the streams of the lost recording
            self.recording = self.store.begin(
                self._title, self._source, self._about, content=self.content, started=self._started
            )

        return self._try(begin)

    def _write(self) -> None:
        assert self.recording is not None
        left = len(self._backlog)  # later rows wait until `_begin` has checked the file again
        while rows := self._backlog.first(left, self.store.bounds.batch_bytes):
            left -= len(rows)
            first = self.store.append(self.recording, rows)
            self._backlog.done(len(rows))
            self.written += len(rows)
            self._publish([(first + index, row.body) for index, row in enumerate(rows)])

    def _publish(self, page: list[tuple[int, str]]) -> None:
        with self._lock:
            watching = list(self._subscriptions)
        for each in watching:
            if not each.offer(page):
                self.unsubscribe(each)

    def _try(self, work: Callable[[], object]) -> bool:
        """Return whether `work` succeeded; log the first failure and schedule a retry."""
        try:
            work()
            return True
        except (sqlite3.Error, OSError, CaesuraError) as error:
            self._failed(error)
            return False

    def _failed(self, error: Exception) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            self.recording = None  # the recording was deleted; the next try begins another one
        if not self._failing:
            LOG.warning(
                "traces are not recorded for now; the recorder retries the write: %s: %s",
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
            LOG.warning("the corrupt file %s cannot be moved: %s", self.store.path, error)
            return
        LOG.warning("moved the corrupt file of traces to %s and begin a new one", aside)
        self.recording, self._retry_at = None, 0.0


def _row_of(entry: Entry) -> Row | None:
    """Return an entry as a row, without content if it is too large; None if that fails."""
    try:
        row = row_of(entry)
        if row.size > MAX_ENTRY_BYTES:
            row = row_of(without_content(entry))
    except Exception:  # an invalid entry must not raise in the caller
        return None
    return row if row.size <= MAX_ENTRY_BYTES else None
