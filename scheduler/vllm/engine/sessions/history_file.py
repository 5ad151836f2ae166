"""The file that keeps the learned pauses of tools and statistics of sessions over restarts.

Pauses depend on the tool and apply to every model. Output lengths and numbers of calls are kept by
model. The file also keeps the salt that keys the hashes of words, since learned weights fit only
the hashes that they were learned from.
"""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from caesura.scheduler.predict.tables import PausePredictor

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_SAVES = 30.0

SALT_BYTES = 16

MAX_MODELS = 4
"""Maximum number of models whose sessions are kept, the last served ones."""


class Kept(Protocol):
    """A predictor whose sessions are kept by model."""

    def to_wire(self) -> dict[str, Any]:
        """Return what it learned as plain data."""
        ...

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        ...


def file_of_engine(path: str | None, index: int) -> str | None:
    """Return the file of one of several data-parallel engines, since each learns by itself.

    The first has `path`; the others' names have their index before the suffix.
    """
    if path is None or index == 0:
        return path
    first = Path(path)
    return str(first.with_name(f"{first.stem}-engine{index}{first.suffix}"))


class HistoryFile:
    """Stores a predictor of pauses and a history of sessions in a file.

    A file that is invalid or cannot be written is logged, and its content is learned again.
    """

    def __init__(self, path: str | None) -> None:
        """Load the file `path`, which need not exist; None stores nothing."""
        self._path = Path(path) if path else None
        self._model = ""
        self._history: Kept | None = None
        self._sessions: dict[str, Any] = {}
        self.salt = os.urandom(SALT_BYTES)
        """The secret that keys the hashes of words."""
        self.predictor = PausePredictor()
        self._load()
        self._saved, self._saved_at = self._content(), time.monotonic()

    def keep(self, history: Kept, model: str) -> None:
        """Restore the history of the model's sessions, and store what the history learns."""
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

    def save_if_due(self) -> None:
        """Save the file if the last save was `SECONDS_BETWEEN_SAVES` ago."""
        if time.monotonic() - self._saved_at >= SECONDS_BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Write the file atomically, if its content has changed."""
        if self._path is None:
            return
        self._saved_at, content = time.monotonic(), self._content()
        if content == self._saved:
            return
        self._saved = content
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(beside, "w", encoding="utf-8", opener=_owners_only) as file:
                file.write(content)
            beside.replace(self._path)
        except OSError as error:
            logger.warning("cannot save the learned pauses and sessions: %s", error)
            self._path = None

    def _content(self) -> str:
        sessions = list(self._sessions.items())
        if self._history is not None:
            sessions.append((self._model, self._history.to_wire()))
        kept = dict(sessions[-MAX_MODELS:])
        wire = {**self.predictor.to_wire(), "salt": self.salt.hex()}
        return json.dumps({**wire, **({"sessions": kept} if kept else {})})

    def _load(self) -> None:
        if self._path is None:
            return
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
            predictor = PausePredictor.from_wire(data)
            sessions = data.get("sessions", {})  # older files have none
            if not isinstance(sessions, Mapping):
                raise ValueError(f"`sessions` must be an object, got {type(sessions).__name__}")
            salt = bytes.fromhex(data["salt"]) if "salt" in data else self.salt
            if len(salt) != SALT_BYTES:
                raise ValueError(f"`salt` must have {SALT_BYTES} bytes, got {len(salt)}")
            self.predictor, self._sessions, self.salt = predictor, dict(sessions), salt
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, RecursionError) as error:
            logger.warning("%s is not used, and will be replaced: %s", self._path, error)


def _owners_only(path: str, flags: int) -> int:
    """Open a file that only its owner can read: the salt is secret."""
    return os.open(path, flags, 0o600)
