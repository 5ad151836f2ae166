"""What was observed of tools' pauses, kept over restarts in a file."""

import json
import logging
import os
import time
from pathlib import Path

from caesura.scheduler.predict.pause import PausePredictor

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SAVES = 30.0


class PauseMemory:
    """A predictor of pauses and the file that it is read from and saved to.

    The file is a convenience: one that is broken or cannot be written costs a line in the log, and
    what it knew is learned again.
    """

    def __init__(self, path: str | None) -> None:
        """`path`: the file, which need not exist; None keeps nothing."""
        self._path = Path(path) if path else None
        self._saved_at = time.monotonic()
        self._changed = False
        self.predictor = self._load()

    def observe(self, tool: str | None, seconds: float) -> None:
        """Learn how long a pause lasted, and save that now and then."""
        self.predictor.observe(tool, seconds)
        self._changed = True
        if time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all."""
        if self._path is None or not self._changed:
            return
        self._saved_at, self._changed = time.monotonic(), False
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(self.predictor.to_wire()), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            logger.warning("what is known of tools' pauses is not kept: %s", error)
            self._path = None

    def _load(self) -> PausePredictor:
        if self._path is None:
            return PausePredictor()
        try:
            return PausePredictor.from_wire(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return PausePredictor()
        except (OSError, ValueError) as error:
            logger.warning("%s is not used, and will be replaced: %s", self._path, error)
            return PausePredictor()
