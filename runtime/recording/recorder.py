"""`Recorder`: takes entries in microseconds, and writes them in a thread of its own.

What cannot be written is counted, and a `gap` entry stands for it when writing works again. Nobody
who hands in entries ever waits, and no fault of the disk reaches them.
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
"""How long entries are collected: a live page is that far behind."""
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
        max_queue: int = MAX_ROWS,
        retry_seconds: float = FIRST_RETRY_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store or Store()
        self.content = content
        self.recording: int | None = None
        """The number of the recording in the store, once it has begun."""
        self.written = 0
        """Entries that are in the store."""
        self._title, self._source, self._about = title, source, about
        self._started = clock()
        self._clock = clock
        self._backlog = Backlog(max_queue)
        self._first_retry = self._retry = retry_seconds
        self._retry_at = 0.0
        self._failing = False
        # Re-entrant: what is collected as garbage while it is held may end a subscription.
        self._lock = threading.RLock()
        self._subscriptions: set[Subscription] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="caesura recorder", daemon=True)
        self._begin()
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Entries that were lost."""
        return self._backlog.dropped

    def add(self, entries: Sequence[Entry]) -> None:
        """Take entries, from any thread. Never waits, and never raises."""
        rows = [row for row in map(_row_of, entries) if row is not None]
        if odd := len(entries) - len(rows):
            self._backlog.lose(odd, TOO_LARGE)
        why = f"{self.store.path.name} could not be written" if self._failing else OVERLOADED
        self._backlog.put(rows, why)
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
        self._backlog.close()
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
        left = len(self._backlog)  # what comes meanwhile has its turn after another look around
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


def _row_of(entry: Entry) -> Row | None:
    """Encode an entry, without what was said if that is too long; None for what is none."""
    try:
        row = row_of(entry)
        if row.size > MAX_ENTRY_BYTES:
            row = row_of(without_content(entry))
    except Exception:  # an odd entry costs itself, and never whoever hands it in
        return None
    return row if row.size <= MAX_ENTRY_BYTES else None
