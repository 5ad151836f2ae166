"""`Recorder`: accepts entries within microseconds, and writes them in a thread of its own.

Entries wait in a bounded queue. Those that it cannot take are counted, and a `gap` entry stands for
them once writing works again. Callers that add entries never wait, and never see an error of the
disk. What was written goes to the subscriptions of live watchers. `HttpLog` adds the requests to
the server, also those that never reach the engine.
"""

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Protocol, Self

from caesura.runtime.recording.catalog import Page
from caesura.runtime.recording.entries import Entry, Row, gap, row_of, without_content
from caesura.runtime.recording.storage import Store
from caesura.scheduler.errors import CaesuraError
from caesura.scheduler.records import HttpRecord
from caesura.stores.sqlite import is_broken

MAX_WAITING = 5000
"""The most entries that wait in memory; a slower watcher reads them from the store instead."""
MAX_CHARACTERS = 8 * 2**20
"""The most characters of JSON that wait in memory."""


class Publisher(Protocol):
    """A source of written entries."""

    def subscribe(self, subscription: "Subscription") -> None:
        """Begin to send entries to the subscription."""
        ...

    def unsubscribe(self, subscription: "Subscription") -> None:
        """Stop sending entries to the subscription."""
        ...


class Subscription:
    """The batches that one watcher has not read; a context manager in the watcher's event loop.

    A watcher subscribes first and then reads the store, so that it misses no entry.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._batches: deque[Page] = deque()
        self._waiting = self._characters = 0
        self._behind = self._closed = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def offer(self, batch: Page) -> bool:
        """Add a batch, from any thread; return False if the event loop is closed."""
        return self._soon(lambda: self._take(batch))

    def finish(self) -> bool:
        """End the subscription, from any thread; return False if the event loop is closed."""
        return self._soon(self._finish)

    async def next(self) -> Page | None:
        """Wait for the next batch and return it.

        None means that batches were dropped or, if `is_closed`, that no batch follows.
        """
        while not (self._batches or self._behind or self._closed):
            self._changed.clear()
            await self._changed.wait()
        if self._behind or not self._batches:
            self._behind = False
            return None
        batch = self._batches.popleft()
        self._waiting -= len(batch)
        self._characters -= _characters(batch)
        return batch

    @property
    def is_closed(self) -> bool:
        """Whether the recording has ended."""
        return self._closed

    def __enter__(self) -> Self:
        """Subscribe."""
        self._publisher.subscribe(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Unsubscribe."""
        self._publisher.unsubscribe(self)

    def _soon(self, work: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            return False
        return True

    def _take(self, batch: Page) -> None:
        self._batches.append(batch)
        self._waiting += len(batch)
        self._characters += _characters(batch)
        if self._waiting > MAX_WAITING or self._characters > MAX_CHARACTERS:
            self._batches.clear()
            self._waiting = self._characters = 0
            self._behind = True
        self._changed.set()

    def _finish(self) -> None:
        self._closed = True
        self._changed.set()


def _characters(batch: Page) -> int:
    return sum(len(body) for _, body in batch)


MAX_ROWS = 16_384
MAX_BYTES = 32 * 2**20
"""Bytes of JSON. Both bounds hold while the disk is slow or the file cannot be written."""


class RowQueue:
    """A queue of rows. Any thread adds rows without waiting; one thread writes and removes them."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self.dropped = 0
        """The number of lost rows."""
        self._max_rows = max_rows
        # Re-entrant, since a garbage collection under the lock may end a span.
        self._lock = threading.RLock()
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._lost, self._why = 0, ""
        self._closed = False
        self._gap: Row | None = None
        self._gap_lost = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes(self) -> int:
        """The bytes of the rows in the queue."""
        return self._bytes

    def put(self, rows: Iterable[Row], why: str) -> None:
        """Add rows; count those that do not fit as lost, for the reason `why`."""
        with self._lock:
            for row in rows:
                full = len(self._rows) >= self._max_rows or self._bytes >= MAX_BYTES
                if full or self._closed:
                    self.lose(1, why)
                else:
                    self._append(row)

    def lose(self, count: int, why: str) -> None:
        """Count lost rows."""
        with self._lock:
            self._lost += count
            self._why = why
            self.dropped += count

    def close_gap(self, at: float) -> None:
        """Add a gap row for the rows lost since the last call, at the Unix time `at`.

        If the last row is a gap, that gap grows instead.
        """
        with self._lock:
            # Reset first: building a row may collect garbage, which may lose further rows.
            lost, self._lost = self._lost, 0
            if not lost:
                return
            if self._gap is not None and self._rows and self._rows[-1] is self._gap:
                self._leave(self._rows.pop())
                lost += self._gap_lost
            self._gap, self._gap_lost = row_of(gap(at, lost, self._why)), lost
            self._append(self._gap)

    def first(self, most: int, size: int) -> list[Row]:
        """Return the first rows: at most `most`, of at most `size` bytes, but at least one.

        The rows stay in the queue until `done` removes them.
        """
        with self._lock:
            rows = list(self._rows)[:most]  # a copy, since a garbage collection may add rows
        count = 0
        for row in rows:
            size -= row.size
            if count and size < 0:
                break
            count += 1
        return rows[:count]

    def done(self, count: int) -> None:
        """Remove the first `count` rows, which are written."""
        with self._lock:
            for _ in range(count):
                self._leave(self._rows.popleft())

    def close(self) -> None:
        """Count all further rows as lost."""
        with self._lock:
            self._closed = True

    def abandon(self) -> None:
        """Remove the remaining rows, and count them as lost."""
        with self._lock:
            rows, self._rows, self._bytes = list(self._rows), deque(), 0
            self.dropped += sum(row.kind != "gap" for row in rows)

    def _append(self, row: Row) -> None:
        self._rows.append(row)
        self._bytes += row.size

    def _leave(self, row: Row) -> None:
        self._bytes -= row.size


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
    ) -> None:
        self.store = store or Store()
        self.content = content
        self.recording: int | None = None
        """The recording's number in the store, or None before it has begun."""
        self.written = 0
        """The number of entries in the store."""
        self._title, self._source, self._about = title, source, about
        self._started = time.time()
        self._queue = RowQueue(max_queue)
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
        return self._queue.dropped

    @property
    def started(self) -> float:
        """When the recording began, a Unix time."""
        return self._started

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries, from any thread. This never waits and never raises."""
        rows = [row for row in map(_row_of, entries) if row is not None]
        if odd := len(entries) - len(rows):
            self._queue.lose(odd, TOO_LARGE)
        why = f"{self.store.path.name} could not be written" if self._failing else OVERLOADED
        self._queue.put(rows, why)
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
        self._queue.close()
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
        self._queue.abandon()
        self.store.close()

    def _flush(self) -> None:
        self._queue.close_gap(time.time())
        if not self._queue or time.monotonic() < self._retry_at:
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
        left = len(self._queue)  # later rows wait until `_begin` has checked the file again
        while rows := self._queue.first(left, self.store.bounds.batch_bytes):
            left -= len(rows)
            first = self.store.append(self.recording, rows)
            self._queue.done(len(rows))
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


MERGE_SECONDS = 1.0
"""The time for which equal requests are counted before one record tells of all of them."""
MAX_KEYS = 64
"""The most different records of such a time; what exceeds them is counted by its status alone."""


class HttpLog:
    """Writes a record for each answer, and one for all equal refusals within a second.

    A client that is refused may try again at once, a thousand times a second. Answers are bounded
    by the engine's work, and refusals are not. So a refusal waits for others that are equal to it.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.time) -> None:
        self._recorder = recorder
        self._clock = clock
        self._equal: dict[tuple[str, int, str, str], HttpRecord] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self,
        route: str,
        status: int,
        seconds: float,
        code: str = "",
        answer: str = "",
        tenant: str = "",
        request_id: str = "",
    ) -> None:
        """Take in a request that is over; `seconds` is how long it took. Call it in the loop.

        A request with the id of an `answer`, and one with a status below 400, has a record of its
        own. Of others that are equal, the record has the first one's `request_id`.
        """
        at = self._clock()
        if answer or status < 400:
            told = HttpRecord(at, route, status, seconds, code, answer, 1, tenant, request_id)
            self._recorder.add([told.entry()])
            return
        key = (route, status, code, tenant)
        if key not in self._equal and len(self._equal) >= MAX_KEYS:
            key = ("unknown", status, "", "")
        before = self._equal.get(key)
        if before is None:
            route, status, code, tenant = key
            first = HttpRecord(at, route, status, seconds, code, "", 1, tenant, request_id)
            self._equal[key] = first
        else:
            longest = max(before.seconds, seconds)
            self._equal[key] = replace(before, at=at, seconds=longest, count=before.count + 1)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MERGE_SECONDS, self.flush)

    def flush(self) -> None:
        """Write what waits. Call it before the recorder is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._equal = self._equal, {}
        if waiting:
            self._recorder.add([each.entry() for each in waiting.values()])
