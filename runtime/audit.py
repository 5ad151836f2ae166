"""The audit log: who asked, who decided, and which tools ran, as JSON lines in a bounded file."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MAX_BYTES = 16 * 2**20
"""At this size the file is kept beside its successor, and the one before it is deleted."""
KEPT = ".1"
_MODE = 0o600


class AuditLog:
    """Appends entries to a file that only its user can read.

    An entry is written at once, so that it is there if the process is killed. A file that cannot
    be written costs its entries only, and the log says so once.
    """

    def __init__(
        self,
        path: Path,
        *,
        content: bool = False,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create it; with `content`, entries hold arguments and reasons, else their digests."""
        self.path = path
        self._content = content
        self._max_bytes = max_bytes
        self._clock = clock
        self._file: int | None = None
        self._size = 0
        self._failed = False
        self.dropped = 0
        """The number of entries that could not be written."""

    def add(self, event: str, **fields: Any) -> None:
        """Append an entry, with the time in seconds since 1970."""
        entry = {"time": round(self._clock(), 3), "event": event, **fields}
        line = json.dumps(entry, separators=(",", ":"), default=str).encode() + b"\n"
        try:
            self._write(line)
            self._failed = False
        except OSError as error:
            self.close()
            self.dropped += 1
            if not self._failed:
                log.warning("the audit log %s cannot be written: %s", self.path, error)
            self._failed = True

    def private(self, name: str, text: str) -> dict[str, str]:
        """Return a text under its name, or its digest where content is left out."""
        if self._content:
            return {name: text}
        return {f"{name}_sha256": hashlib.sha256(text.encode(errors="replace")).hexdigest()}

    def close(self) -> None:
        """Close the file. The next entry opens it again."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, line: bytes) -> None:
        if self._file is not None and self._size + len(line) > self._max_bytes:
            self.close()
            self.path.replace(self.path.with_name(self.path.name + KEPT))
        if self._file is None:
            self._open()
        assert self._file is not None
        os.write(self._file, line)
        self._size += len(line)

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _MODE)
        os.fchmod(self._file, _MODE)
        self._size = os.fstat(self._file).st_size
