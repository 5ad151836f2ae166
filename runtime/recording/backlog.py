"""`Backlog`: rows on their way to the file, bounded in number and in size.

What does not fit is counted, and a gap stands for it behind the rows that were there.
"""

import threading
from collections import deque
from collections.abc import Iterable

from caesura.runtime.recording.entries import Row, gap, row_of

MAX_ROWS = 16_384
MAX_BYTES = 32 * 2**20
"""Of JSON. Both bound what waits for a disk, or for a file that cannot be written."""


class Backlog:
    """Any thread puts rows in and never waits; one thread takes them out, once they are written."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self.dropped = 0
        """Rows that were lost."""
        self._max_rows = max_rows
        # Re-entrant: what is collected as garbage while it is held may end a span.
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
        """The size of what waits."""
        return self._bytes

    def put(self, rows: Iterable[Row], why: str) -> None:
        """Take rows; those that do not fit are lost, and that is `why`."""
        with self._lock:
            for row in rows:
                full = len(self._rows) >= self._max_rows or self._bytes >= MAX_BYTES
                if full or self._closed:
                    self.lose(1, why)
                else:
                    self._append(row)

    def lose(self, count: int, why: str) -> None:
        """Count rows that do not come."""
        with self._lock:
            self._lost += count
            self._why = why
            self.dropped += count

    def close_gap(self, at: float) -> None:
        """Have a row stand for what was lost since the last call; at: Unix time.

        If nothing has come since the last gap, that one gets larger.
        """
        with self._lock:
            # Taken at once: making a row may collect garbage, and that may lose others.
            lost, self._lost = self._lost, 0
            if not lost:
                return
            if self._gap is not None and self._rows and self._rows[-1] is self._gap:
                self._leave(self._rows.pop())
                lost += self._gap_lost
            self._gap, self._gap_lost = row_of(gap(at, lost, self._why)), lost
            self._append(self._gap)

    def first(self, most: int, size: int) -> list[Row]:
        """Return the first rows, so many and of such a size at most, or one.

        They stay until they are `done`.
        """
        with self._lock:
            rows = list(self._rows)[:most]  # a copy: what is there may change in a loop, see above
        count = 0
        for row in rows:
            size -= row.size
            if count and size < 0:
                break
            count += 1
        return rows[:count]

    def done(self, count: int) -> None:
        """Forget the first rows: they are written."""
        with self._lock:
            for _ in range(count):
                self._leave(self._rows.popleft())

    def close(self) -> None:
        """Take no more rows: those that come are lost."""
        with self._lock:
            self._closed = True

    def abandon(self) -> None:
        """Lose what is still here."""
        with self._lock:
            rows, self._rows, self._bytes = list(self._rows), deque(), 0
            self.dropped += sum(row.kind != "gap" for row in rows)

    def _append(self, row: Row) -> None:
        self._rows.append(row)
        self._bytes += row.size

    def _leave(self, row: Row) -> None:
        self._bytes -= row.size
