"""The files of a run: results, each request once, and events, for charts and for resuming."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.run.errors import ResumeError
from caesura.planning.run.lines import LineFile

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

    async def append(self, result: Result) -> None:
        """Keep a result; return once the disk has it. Raises `OutputError`."""
        assert result.key not in self.done, f"{result.key} is done twice"
        self.done[result.key] = result
        await self._results.append(result.as_row())

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
