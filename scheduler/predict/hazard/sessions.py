"""The rows of live sessions, until their ends are known."""

from collections import OrderedDict

from caesura.scheduler.predict.hazard.learner import Learner, Row

MAX_LIVE_SESSIONS = 4096
MAX_LIVE_ROWS = 20_000
MAX_ROWS_OF_A_SESSION = 256
"""Later segments of a longer session are not learned."""


class LiveRows:
    """Rows of sessions by key, one per segment from the first on; `learner` gets them at the end.

    The oldest sessions are given up beyond the limits. They count as cut off.
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._rows: OrderedDict[str, list[Row]] = OrderedDict()
        self._count = 0

    def add(self, key: str, row: Row) -> None:
        """Add the row of a session's segment that ended with a call."""
        rows = self._rows.setdefault(key, [])
        self._rows.move_to_end(key)
        if len(rows) < MAX_ROWS_OF_A_SESSION:
            rows.append(row)
            self._count += 1
        while len(self._rows) > MAX_LIVE_SESSIONS or self._count > MAX_LIVE_ROWS:
            self.end(next(iter(self._rows)), None)

    def end(self, key: str, last: Row | None) -> None:
        """Hand over a session's rows; `last` is that of its last segment, or None if it is cut.

        Every row is an observation of the calls from its segment on.
        """
        rows = self._rows.pop(key, [])
        self._count -= len(rows)
        made = len(rows)
        for index, row in enumerate(rows):
            self._learner.observe(row, made - index, whole=last is not None)
        if last is not None:
            self._learner.observe(last, 0)
