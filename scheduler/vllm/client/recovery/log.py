"""The log of one session, as the session reads and writes it; a session without one has no cost."""

from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import count

from caesura.scheduler.session_log import LoggedTurn, SessionLog, TurnOutcome


class TurnLog:
    """Yields the turns to replay, then takes those that are new."""

    def __init__(self, log: SessionLog | None) -> None:
        self._log = log
        self._left = deque(log.turns if log is not None else ())
        self._readers = 0

    @property
    def writes(self) -> bool:
        """Whether there is a log that takes new turns."""
        return self._log is not None

    def next(self) -> LoggedTurn | None:
        """Return the next turn to replay, or None if the session goes on by itself."""
        return self._left.popleft() if self._left else None

    def new_ids(self) -> Callable[[], str] | None:
        """Return what makes the ids of the calls that the next reader reads.

        They follow from the log's key, so that a replay makes the same. None without a log. An id
        has nine alphanumeric characters, as Mistral's chat templates require.
        """
        if self._log is None:
            return None
        key, numbers = f"{self._log.key}/{self._readers}", count()
        self._readers += 1
        return lambda: blake2b(f"{key}/{next(numbers)}".encode(), digest_size=8).hexdigest()[:9]

    def begin(self, turn: LoggedTurn) -> None:
        """Write a turn; one with media is the last that is written."""
        if self._log is not None:
            self._log.begin(turn)
            if turn.has_media:
                self._log = None

    def sampled(self, tokens: Sequence[int]) -> None:
        """Write tokens of the last turn."""
        if self._log is not None:
            self._log.sampled(tokens)

    def end(self, outcome: TurnOutcome) -> None:
        """Write the end of the last turn."""
        if self._log is not None:
            self._log.end(outcome)
