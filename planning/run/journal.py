"""The files of a run: results, each request once, and events, for charts and for resuming.

They are JSON lines that survive crashes: appended, synced, locked, and cut at a torn line.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from caesura.planning.application.application import Application
from caesura.scheduler.errors import CaesuraError, UsageError


class RunError(CaesuraError):
    """A run can't go on. What it has written stays, and the same command continues it."""


class OutputError(RunError):
    """The files of results or events can't be written."""


class ResumeError(UsageError):
    """The files of a former run don't belong to this run, or another process holds them."""


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


EVENTS_SUFFIX = ".events.jsonl"
"""What the file of events has behind the name of the file of results."""


@dataclass(frozen=True, slots=True)
class Result:
    """One request's row in the file of results.

    `error` says why there is no output; else it is empty. `begun` is the second of the run at which
    the request was sent, and `seconds` is what it took. `finish` is the engine's `finish_reason`.
    """

    key: str
    task: str
    model: str
    output: str = ""
    error: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    begun: float = 0.0
    seconds: float = 0.0
    replica: str = ""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Result":
        """Return the result in a row; raises `ResumeError` for a row without its key."""
        if not isinstance(row.get("key"), str):
            raise ResumeError(f"a row of the results has no key: {str(row)[:80]}")
        known = {each.name for each in fields(cls)}
        return cls(**{"task": "", "model": "", **{k: v for k, v in row.items() if k in known}})

    def as_row(self) -> dict[str, Any]:
        """Return the row, without the fields of the other outcome."""
        row = asdict(self)
        del row["output" if self.error else "error"]
        return row


def digest_of(application: Application) -> str:
    """Return a digest of what outputs depend on: tasks, their rows, and the models' files."""
    models = [(one.name, one.path, one.arguments) for one in application.models]
    tasks = [asdict(task) for task in application.tasks]
    held = json.dumps([models, tasks, application.seed], sort_keys=True, default=str)
    return hashlib.sha256(held.encode()).hexdigest()


def events_path(output: Path) -> Path:
    """Return the file of events that stands beside a file of results."""
    return output.with_name(output.name + EVENTS_SUFFIX)


class Journal:
    """The results and the events of one run, and of the runs that it continues.

    `done` holds the results by key. `start` writes a run's first row into the file of events,
    `started`, with the application's digest and the time. All other rows have `at`, the seconds
    since then.

    Raises `ResumeError` if the files belong to another application or another process, and
    `OutputError` if they can't be written.
    """

    def __init__(
        self,
        output: Path,
        application: Application,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._now = now
        self._watchers: list[Callable[[Mapping[str, Any]], None]] = []
        self._result_watchers: list[Callable[[Result], None]] = []
        self._started = {"application": application.name, "digest": digest_of(application)}
        self._began = clock()
        self._results = LineFile(output)
        try:
            self._events = LineFile(events_path(output))
            self._check(output)
            self.done = self._by_key(output)
        except BaseException:
            self.close()
            raise

    def start(self, **about: Any) -> None:
        """Begin to count the seconds of the run. Raises `OutputError`."""
        self._began = self._clock()
        row = {"event": "started", "time": self._now(), **self._started, "done": len(self.done)}
        row |= about
        for watcher in self._watchers:
            watcher(row)
        self._events.write(row)

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return self._clock() - self._began

    def watch(self, watcher: Callable[[Mapping[str, Any]], None]) -> None:
        """Call `watcher` with the row of every event from now on."""
        self._watchers.append(watcher)

    def watch_results(self, watcher: Callable[[Result], None]) -> None:
        """Call `watcher` with every result that the disk has from now on."""
        self._result_watchers.append(watcher)

    async def append(self, result: Result) -> None:
        """Keep a result; return once the disk has it. Raises `OutputError`."""
        assert result.key not in self.done, f"{result.key} is done twice"
        self.done[result.key] = result
        await self._results.append(result.as_row())
        for watcher in self._result_watchers:
            watcher(result)

    async def event(self, name: str, **fields: Any) -> None:
        """Keep an event with the second of the run. Raises `OutputError`."""
        row = {"event": name, "at": round(self.seconds, 3), **fields}
        for watcher in self._watchers:
            watcher(row)
        await self._events.append(row)

    def close(self) -> None:
        """Close both files. Idempotent."""
        self._results.close()
        if hasattr(self, "_events"):
            self._events.close()

    def _check(self, output: Path) -> None:
        """Raise `ResumeError` unless former rows are of the same application."""
        former = [row.get("digest") for row in self._events.rows if row.get("event") == "started"]
        if self._results.rows and not former:
            raise ResumeError(
                f"{output} holds {len(self._results.rows)} rows, but its file of events"
                f" {events_path(output).name} is missing: choose another file"
            )
        if any(digest != self._started["digest"] for digest in former):
            raise ResumeError(
                f"{output} holds results of an application that has changed since: choose another"
                " file, or undo the change to continue"
            )

    def _by_key(self, output: Path) -> dict[str, Result]:
        done: dict[str, Result] = {}
        for number, row in enumerate(self._results.rows, 1):
            result = Result.from_row(row)
            if result.key in done:
                raise ResumeError(
                    f"{output}, line {number}: {result.key!r} stands there a second time; remove"
                    " one of the two lines"
                )
            done[result.key] = result
        return done
