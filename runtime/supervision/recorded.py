"""Restarts of an engine as entries of a recording."""

import time
from collections.abc import Callable

from caesura.runtime.recording.recorder import Recorder
from caesura.scheduler.records import RestartRecord


class RecordedRestarts:
    """Is told by a supervisor what happens, and writes an entry for each death."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.time) -> None:
        """Create it; `clock` gives Unix seconds."""
        self._recorder = recorder
        self._clock = clock
        self._died: list[tuple[float, str]] = []

    def tell(self, what: str, why: str, seconds: float) -> None:
        """Take in what happened; see `supervisor.Tell`."""
        now = self._clock()
        if what in ("died", "hung"):
            self._died.append((now, why))
            return
        died, self._died = self._died, []
        at, reason = died[0]
        lives = what == "restarted"
        record = RestartRecord(
            at=at,
            why=reason if lives else why,
            attempts=len(died) if lives else len(died) - 1,
            seconds=now - at if lives else None,
        )
        self._recorder.add([record.entry()])
