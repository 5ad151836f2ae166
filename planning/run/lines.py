"""A file of JSON lines that survives crashes: appended, synced, locked, and cut at a torn line."""

import asyncio
import fcntl
import json
import os
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from caesura.planning.run.errors import OutputError, ResumeError


class LineFile:
    """JSON objects in a file, one in a line, of one process at a time.

    A row is safe once `append` has returned: rows that are appended together share one `fsync`.
    After a failed write the file ends with its last whole row, and takes no more.

    Raises `ResumeError` if another process holds the file or a line of it isn't JSON, and
    `OutputError` if it can't be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[bytes] = deque()
        self._failure: OutputError | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.rows = self._read()
        except BlockingIOError:
            os.close(self._file)
            raise ResumeError(
                f"another run writes {path}: wait for its end, or choose another file"
            ) from None
        except BaseException:
            os.close(self._file)
            raise
        # One thread, so that writes keep their order even if their callers are cancelled.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="results")

    async def append(self, row: Mapping[str, Any]) -> None:
        """Write a row, and return once the disk has it."""
        self._pending.append(_as_line(row))
        await asyncio.get_running_loop().run_in_executor(self._writer, self._write_pending)

    def write(self, row: Mapping[str, Any]) -> None:
        """Write a row as `append` does, but block the calling thread meanwhile."""
        self._pending.append(_as_line(row))
        self._writer.submit(self._write_pending).result()

    def close(self) -> None:
        """Finish the writes under way, and unlock the file. Idempotent."""
        if self._file >= 0:
            self._writer.shutdown()
            os.close(self._file)
            self._file = -1

    def _read(self) -> list[dict[str, Any]]:
        """Return the rows, and cut what follows the last whole one."""
        held = bytearray()
        while piece := os.read(self._file, 1 << 20):
            held += piece
        self._end = held.rfind(b"\n") + 1
        os.ftruncate(self._file, self._end)
        return [self._row(n, line) for n, line in enumerate(held[: self._end].split(b"\n")[:-1], 1)]

    def _row(self, number: int, line: bytearray) -> dict[str, Any]:
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ResumeError(
                f"{self._path}, line {number}: expected a JSON object, got {bytes(line[:60])!r};"
                " remove the line, or choose another file"
            )
        return row

    def _write_pending(self) -> None:
        """Write all pending rows; runs in the writer's thread."""
        lines = bytearray()
        while self._pending:
            lines += self._pending.popleft()
        if self._failure is None and lines:
            try:
                self._write(lines)
            except OSError as error:
                self._failure = self._unwritable(error)
                with suppress(OSError):
                    os.ftruncate(self._file, self._end)
        if self._failure is not None:
            raise self._failure

    def _write(self, lines: bytes | bytearray) -> None:
        done = 0
        while done < len(lines):
            done += os.pwrite(self._file, memoryview(lines)[done:], self._end + done)
        os.fsync(self._file)
        self._end += done

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self._path} can't be written: {error.strerror or error}; make room or choose another"
            " file, then run the same command again"
        )


def _as_line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"
