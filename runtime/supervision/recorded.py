"""Restarts of an engine as entries of a recording."""

import time
from collections.abc import Callable

from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.records import RestartRecord


class RecordedRestarts:
    """Is told by a supervisor what happens, and writes entries for each death.

    The first says at once that the engine is down, and the last what came of it.
    """

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.time) -> None:
        """Create it; `clock` gives Unix seconds."""
        self._recorder = recorder
        self._clock = clock
        self._died: list[tuple[float, str]] = []

    def tell(self, what: str, why: str, seconds: float) -> None:
        """Take in what happened; see `supervisor.Tell`."""
        now = self._clock()
        if what in ("died", "hung"):
            self._died.append((now - seconds, why))
            self._write("down", self._died[0][1], len(self._died) - 1)
            return
        starts = len(self._died)
        if what == "restarted":
            self._write("restarted", self._died[0][1], starts, now - self._died[0][0])
        else:
            self._write("given up", why, starts - 1)
        self._died = []

    def _write(self, state: str, why: str, starts: int, seconds: float | None = None) -> None:
        record = RestartRecord(self._died[0][0], why, starts, seconds, state)
        self._recorder.add([record.entry()])
