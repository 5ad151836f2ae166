"""The what-ifs of a server: one at a time, in a process of its own, with bounds and progress."""

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from caesura.processes.worker import Worker, WorkerDied, WorkerFailed
from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.choice import NAMES, Choice, doubts_about, machine_of, recorded_of
from caesura.runtime.whatif.stretch import Stretch, collect, to_wire
from caesura.scheduler.calibration import Calibration
from caesura.simulator.policy import SIZES, Policy

LOG = logging.getLogger(__name__)

MAX_SECONDS = 900.0
"""The longest that the replays of a job may take together."""
MAX_REPLAYS = 12
"""The most policies of one job, the recorded one included."""
MAX_MEMORY_BYTES = 8 * 2**30
CHILD = "caesura.runtime.whatif.child"


async def start_child() -> Worker:
    """Start the process that simulates, with the environment of this one."""
    return await Worker.spawn(CHILD, environment=os.environ)


class Busy(Exception):
    """A replay is under way already."""


@dataclass(slots=True)
class Job:
    """Replays of one stretch: of the recorded policy, and of each choice. Times are Unix seconds.

    A replay is compared with that of the recorded policy, never with the recording: that one ran on
    a real machine, which the simulated one resembles only so far.
    """

    recording: int
    since: float
    until: float
    choices: tuple[Choice, ...]
    begun: float
    state: str = "running"
    """`running`, `done`, `failed` or `cancelled`."""
    done: float = 0.0
    """The completed share of all replays, from 0 to 1."""
    policies: list[Policy] = field(default_factory=list)
    """The policies of the replays, the recorded one first."""
    doubts: list[str] = field(default_factory=list)
    """Sentences on what of the recording the replays cannot follow."""
    made: dict[str, Any] = field(default_factory=dict)
    """What the process has told at its end."""
    error: str = ""
    stretch: Stretch | None = field(default=None, repr=False)

    def public(self) -> dict[str, Any]:
        """Return the job as JSON-able data."""
        told = ("recording", "since", "until", "begun", "state", "done", "doubts", "error")
        data = {name: getattr(self, name) for name in told}
        stretch = self.stretch
        data["sessions"] = len(stretch.sessions) if stretch is not None else 0
        data["left_out"] = dict(stretch.left_out) if stretch is not None else {}
        data["compared"], data["was"] = self.made.get("sessions", 0), self.made.get("was")
        figures = self.made.get("replays") or [{} for _ in self.policies]
        data["replays"] = [
            {"policies": {what: policy.settings[what] for what in NAMES}, **one}
            for policy, one in zip(self.policies, figures, strict=True)
        ]
        return data

    def fail(self, error: str) -> None:
        """Note why the replays came to nothing, unless they have ended already."""
        if self.state == "running":
            self.state, self.error = "failed", error

    def moved(self, told: Mapping[str, Any]) -> None:
        """Note how far the replays are, from what `replay` tells of them."""
        span = max(1.0, self.stretch.seconds if self.stretch is not None else 1.0)
        done = (told["replay"] + min(1.0, told["at"] / span)) / len(self.policies)
        self.done = min(0.99, max(self.done, done))

    def end(self, made: dict[str, Any]) -> None:
        """Keep what the replays have made."""
        self.made, self.done, self.state = made, 1.0, "done"


class Replays:
    """Replays stretches of the recordings in a store, on the machine of a calibration.

    `calibration` returns that of the engine, or None. `start` starts the process that simulates,
    whose module has a `replay` as `whatif/child.py` has; it is ended after `max_seconds`.
    """

    def __init__(
        self,
        store: Store,
        calibration: Callable[[], Calibration | None],
        *,
        start: Callable[[], Awaitable[Worker]] = start_child,
        max_seconds: float = MAX_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._calibration = calibration
        self._start = start
        self._max_seconds = max_seconds
        self._clock = clock
        self._working: asyncio.Task[None] | None = None
        self.job: Job | None = None
        """The last job, or the one under way."""

    def start(self, recording: int, since: float, until: float, choices: Sequence[Choice]) -> Job:
        """Begin replays of the recorded policy and of each choice.

        Raises `Busy` while others are under way, and `UsageError`.
        """
        if self._working is not None and not self._working.done():
            raise Busy
        if not since < until:
            raise UsageError(f"a stretch begins before it ends, got {since:.3f} and {until:.3f}")
        if self._calibration() is None:
            raise UsageError(
                "the engine has no calibration, so the costs of its steps are unknown: run"
                " `caesura calibrate`, or serve without --no-calibrate"
            )
        if len(choices) >= MAX_REPLAYS:
            raise UsageError(
                f"at most {MAX_REPLAYS - 1} policies can be replayed at once, got {len(choices)}"
            )
        job = self.job = Job(recording, since, until, tuple(choices), self._clock())
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
        except WorkerFailed as error:
            LOG.warning("a what-if failed", exc_info=error)
            job.fail(_reason(error))
        except (UsageError, WorkerDied, OSError) as error:
            job.fail(str(error))
        except Exception as error:  # a job that seems to run would block the page's button for ever
            LOG.exception("a what-if failed")
            job.fail(f"{type(error).__name__}: {error}")

    def _task(self, job: Job, folder: Path) -> dict[str, Any]:
        found = catalog.recording(self._store.path, job.recording)
        if found is None:
            raise UsageError(f"there is no recording {job.recording}")
        calibration = self._calibration()
        assert calibration is not None
        recorded = recorded_of(found.about)
        machine = machine_of(calibration, folder / "calibration.json", found.about)
        records = folder / "records.jsonl"
        stretch = collect(self._store.path, job.recording, job.since, job.until, records)
        others = {str(one.settings): one for one in (each.of(recorded) for each in job.choices)}
        others.pop(str(recorded.settings), None)
        job.policies = [recorded, *others.values()]
        job.stretch, job.doubts = stretch, doubts_about(found.about)
        told: Mapping[str, Any] = {
            "workload": f"{len(stretch.sessions)} sessions of recording {job.recording}",
            "replay_of": job.recording,
            "stretch": f"{job.since:.3f} to {job.until:.3f}",
            "machine": f"{calibration.device}, as calibrated on {calibration.date}",
        }
        return {
            "stretch": to_wire(stretch),
            "recording": job.recording,
            "machine": machine,
            "policies": [_plain(policy) for policy in job.policies],
            "store": str(self._store.path),
            "bounds": asdict(self._store.bounds),
            "about": told,
            "memory_bytes": MAX_MEMORY_BYTES,
        }

    async def _simulate(self, job: Job, task: Mapping[str, Any]) -> None:
        worker = await self._start()
        try:
            made = await worker.follow("replay", job.moved, task=task)
        finally:
            await worker.kill()
        job.end(made)


def _reason(error: WorkerFailed) -> str:
    """Return why the replays failed, for the page."""
    if error.kind == "MemoryError":
        return f"it needs more than {MAX_MEMORY_BYTES / 2**30:g} GiB of memory"
    return f"{error.kind}: {error}"[:1000]


def _plain(policy: Policy) -> dict[str, Any]:
    """Return what makes up a recorded policy, as JSON-able data."""
    return {
        "name": policy.name,
        "settings": dict(policy.settings),
        **{name: getattr(policy, name) for name in SIZES.values()},
    }
