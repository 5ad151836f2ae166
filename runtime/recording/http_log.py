"""Requests to the server as records, also those that never reach the engine."""

import asyncio
import time
from collections.abc import Callable

from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.records import HttpRecord

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
        self._equal: dict[tuple[str, int, str], HttpRecord] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(
        self, route: str, status: int, seconds: float, code: str = "", answer: str = ""
    ) -> None:
        """Take in a request that is over; `seconds` is how long it took. Call it in the loop.

        A request with the id of an `answer`, and one with a status below 400, has a record of its
        own.
        """
        at = self._clock()
        if answer or status < 400:
            self._recorder.add([HttpRecord(at, route, status, seconds, code, answer).entry()])
            return
        key = (route, status, code)
        if key not in self._equal and len(self._equal) >= MAX_KEYS:
            key = ("unknown", status, "")
        before = self._equal.get(key)
        longest = seconds if before is None else max(before.seconds, seconds)
        count = 1 if before is None else before.count + 1
        self._equal[key] = HttpRecord(at, *key[:2], longest, key[2], count=count)
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
