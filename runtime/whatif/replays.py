"""The what-ifs of a server: one at a time, in a process of its own, with bounds and progress."""

import asyncio
import json
import logging
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from caesura.runtime.errors import UsageError
from caesura.runtime.recording.storage import reading
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.whatif.choice import Choice, machine_of
from caesura.runtime.whatif.stretch import Stretch, collect, to_wire
from caesura.scheduler.calibration import Calibration

LOG = logging.getLogger(__name__)

MAX_SECONDS = 900.0
"""The longest that one replay may take."""
MAX_MEMORY_BYTES = 8 * 2**30
CHILD = (sys.executable, "-m", "caesura.runtime.whatif.child")


class Busy(Exception):
    """A replay is under way already."""


@dataclass(slots=True)
class Job:
    """One replay: what is replayed, how far it is, and what came of it. Times are Unix seconds."""

    recording: int
    since: float
    until: float
    choice: Choice
    begun: float
    state: str = "running"
    """`running`, `done`, `failed` or `cancelled`."""
    sessions: int = 0
    done: float = 0.0
    """The completed share of the arrivals, from 0 to 1."""
    result: int | None = None
    """The number of the recording that holds the result."""
    error: str = ""
    stretch: Stretch | None = field(default=None, repr=False)

    def public(self) -> dict[str, Any]:
        """Return the job as JSON-able data."""
        told = ("recording", "since", "until", "begun", "state", "sessions", "done", "result")
        data = {name: getattr(self, name) for name in told}
        return data | {"error": self.error, "policies": asdict(self.choice)}

    def fail(self, error: str) -> None:
        """Note why the replay came to nothing, unless it has ended already."""
        if self.state == "running":
            self.state, self.error = "failed", error


class Replays:
    """Replays stretches of the recordings in a store, on the machine of a calibration.

    `calibration` returns that of the engine, or None. `command` starts the process that simulates;
    it is ended after `max_seconds`.
    """

    def __init__(
        self,
        store: Store,
        calibration: Callable[[], Calibration | None],
        *,
        command: Sequence[str] = CHILD,
        max_seconds: float = MAX_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._calibration = calibration
        self._command = command
        self._max_seconds = max_seconds
        self._clock = clock
        self._working: asyncio.Task[None] | None = None
        self.job: Job | None = None
        """The last job, or the one under way."""

    def start(self, recording: int, since: float, until: float, choice: Choice) -> Job:
        """Begin a replay. Raises `Busy` while one is under way, and `UsageError`."""
        if self._working is not None and not self._working.done():
            raise Busy
        if not since < until:
            raise UsageError(f"a stretch begins before it ends, got {since:.3f} and {until:.3f}")
        if self._calibration() is None:
            raise UsageError(
                "the engine has no calibration, so the costs of its steps are unknown: run"
                " `caesura calibrate`, or serve without --no-calibrate"
            )
        job = self.job = Job(recording, since, until, choice, self._clock())
        self._working = asyncio.create_task(self._work(job))
        return job

    async def cancel(self) -> None:
        """End the replay that is under way, if there is one."""
        if self._working is not None and not self._working.done():
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)

    async def _work(self, job: Job) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="caesura-what-if-") as folder:
                task = await asyncio.to_thread(self._task, job, Path(folder))
                async with asyncio.timeout(self._max_seconds):
                    await self._simulate(job, task)
        except asyncio.CancelledError:
            job.state = "cancelled"
            raise
        except TimeoutError:
            job.fail(f"it took longer than {self._max_seconds:g} s: mark a shorter stretch")
        except (UsageError, OSError) as error:
            job.fail(str(error))
        except Exception as error:  # a job that seems to run would block the page's button for ever
            LOG.exception("a what-if failed")
            job.fail(f"{type(error).__name__}: {error}")

    def _task(self, job: Job, folder: Path) -> dict[str, Any]:
        found = reading.recording(self._store.path, job.recording)
        if found is None:
            raise UsageError(f"there is no recording {job.recording}")
        calibration = self._calibration()
        assert calibration is not None
        machine = machine_of(calibration, folder / "calibration.json", found.about)
        records = folder / "records.jsonl"
        stretch = collect(self._store.path, job.recording, job.since, job.until, records)
        job.stretch, job.sessions = stretch, len(stretch.sessions)
        told: Mapping[str, Any] = {
            "workload": f"{job.sessions} sessions of recording {job.recording}",
            "replay_of": job.recording,
            "policy": str(job.choice),
            "machine": f"{calibration.device}, as calibrated on {calibration.date}",
        }
        return {
            "stretch": to_wire(stretch),
            "machine": machine,
            "policy": job.choice.policy,
            "store": str(self._store.path),
            "bounds": asdict(self._store.bounds),
            "title": f"What if: {job.choice} ({told['workload']})",
            "about": told,
            "memory_bytes": MAX_MEMORY_BYTES,
        }

    async def _simulate(self, job: Job, task: Mapping[str, Any]) -> None:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        try:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(task).encode() + b"\n")
            await process.stdin.drain()
            async for line in process.stdout:
                self._take(job, json.loads(line))
        finally:
            await _end(process)
        job.fail("its process ended without a result; the server's log may say why")

    def _take(self, job: Job, told: Mapping[str, Any]) -> None:
        if "at" in told:
            span = max(1.0, job.stretch.seconds if job.stretch is not None else 1.0)
            job.done = min(0.99, max(job.done, told["at"] / span))
        elif "recording" in told:
            job.result, job.done, job.state = int(told["recording"]), 1.0, "done"
        else:
            job.fail(str(told.get("error", ""))[:1000])


async def _end(process: Process) -> None:
    """End a process, and wait until it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await asyncio.shield(process.wait())
