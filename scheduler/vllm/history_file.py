"""What was observed of tools' pauses and of sessions, kept over restarts in a file.

Pauses are the tools' and hold for every model; how long a model writes, and how often it calls, is
kept by model.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.pause import PausePredictor

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SAVES = 30.0

MOST_MODELS = 4
"""The sessions of so many models are kept, of those that were served last."""


class HistoryFile:
    """A predictor of pauses, a history of sessions, and the file that both are kept in.

    The file is a convenience: one that is broken or cannot be written costs a line in the log, and
    what it knew is learned again.
    """

    def __init__(self, path: str | None) -> None:
        """`path`: the file, which need not exist; None keeps nothing."""
        self._path = Path(path) if path else None
        self._model = ""
        self._history: History | None = None
        self._sessions: dict[str, Any] = {}
        self.predictor = PausePredictor()
        self._load()
        self._saved, self._saved_at = self._content(), time.monotonic()

    def keep(self, history: History, model: str) -> None:
        """Tell the history what is known of the model's sessions, and keep what it learns."""
        if self._path is None:
            return
        known = self._sessions.pop(model, None)
        if known is not None:
            try:
                history.restore(known)
            except ValueError as error:
                logger.warning("%s: sessions of %s are not used: %s", self._path, model, error)
        self._model, self._history = model, history
        self._saved = self._content()

    def observe(self, tool: str | None, seconds: float) -> None:
        """Learn how long a pause lasted, and save all that is known now and then."""
        self.predictor.observe(tool, seconds)
        if time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Write the file, whole or not at all, if there is anything new."""
        if self._path is None:
            return
        self._saved_at, content = time.monotonic(), self._content()
        if content == self._saved:
            return
        self._saved = content
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(content, encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            logger.warning("what is known of tools' pauses and sessions is not kept: %s", error)
            self._path = None

    def _content(self) -> str:
        sessions = list(self._sessions.items())
        if self._history is not None:
            sessions.append((self._model, self._history.to_wire()))
        kept = dict(sessions[-MOST_MODELS:])
        return json.dumps({**self.predictor.to_wire(), **({"sessions": kept} if kept else {})})

    def _load(self) -> None:
        if self._path is None:
            return
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
            predictor = PausePredictor.from_wire(data)
            sessions = data.get("sessions", {})  # files of old have none
            if not isinstance(sessions, Mapping):
                raise ValueError("`sessions` is no mapping")
            self.predictor, self._sessions = predictor, dict(sessions)
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("%s is not used, and will be replaced: %s", self._path, error)
