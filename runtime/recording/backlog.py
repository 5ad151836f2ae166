"""`Backlog`: a queue of rows that wait for the file, bounded in number and in size.

The backlog counts rows that do not fit, and puts a gap entry in their place.
"""

import threading
from collections import deque
from collections.abc import Iterable

from caesura.runtime.recording.entries import Row, gap, row_of

MAX_ROWS = 16_384
MAX_BYTES = 32 * 2**20
"""Bytes of JSON. Both bounds hold while the disk is slow or the file cannot be written."""


class Backlog:
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
        """The bytes of the rows in the backlog."""
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

        The rows stay in the backlog until `done` removes them.
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
