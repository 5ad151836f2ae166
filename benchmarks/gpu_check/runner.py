"""Running the checks within the time, each part of one in a child process."""

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_check.checks import Check
from benchmarks.gpu_check.finding import Finding, merged
from benchmarks.gpu_check.turn import LOOK_SECONDS, Turn

SHOWN = 300
"""The most characters of a failed check's log that its finding shows."""
ENOUGH_SECONDS = 20.0
"""A check that has less time left is not begun."""
STARTING = 0.6
"""The share of the time left that engines may take to start, with all checks that are not timed."""

Clock = Callable[[], float]


@dataclass
class Job:
    """A part of a check: its process, and the files that it writes."""

    name: str
    part: str
    check: Check
    out: Path
    """Without a suffix."""
    clock: Clock
    began: float = 0.0
    killed: bool = False
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def turn(self) -> Turn:
        """Its turn to measure."""
        return Turn(self.out)

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._process is None or self._process.poll() is not None

    @property
    def settled(self) -> bool:
        """Whether it has ended, or waits for its turn."""
        return self.ended or (self.check.timed and self.turn.ready.exists())

    def start(self, scale: str) -> None:
        """Start the process."""
        self.turn.clear()
        self.out.with_suffix(".json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.gpu_check.child", self.name]
        command += ["--part", self.part] if self.part else []
        command += ["--scale", scale, "--out", str(self.out)]
        self.began = self.clock()
        with self.out.with_suffix(".log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        """Kill what is left of the process and of those that it has started."""
        if self._process is None:
            return
        self.killed = self.killed or not self.ended
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def found(self) -> Finding:
        """Return what it found, or how it failed."""
        took = self.clock() - self.began
        try:
            return Finding.load(self.out.with_suffix(".json"))
        except (OSError, ValueError):
            code = None if self._process is None else self._process.returncode
            why = "It took too long" if self.killed else f"It ended with exit code {code}"
            log = self.out.with_suffix(".log")
            of = f"{self.part}: " if self.part else ""
            told = _reason(log.read_text(errors="replace"))
            return Finding("failed", f"{of}{why}; {log.name}: {told}", seconds=took)


class Runner:
    """Runs checks whose results and logs go into a folder; `clock` returns seconds."""

    def __init__(
        self,
        folder: Path,
        scale: str,
        seconds: float,
        *,
        side_by_side: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self._folder = folder
        self._scale = scale
        self._side_by_side = side_by_side
        self._clock = clock
        self._end = clock() + seconds

    def run(self, checks: Mapping[str, Check], told: Callable[[str, Finding], None]) -> None:
        """Run the checks in order, and tell what each found.

        Engines of a batch start side by side, together with all that is not timed. Then the timed
        checks measure one by one, each for its share of the time that is left. A check that exceeds
        its share by half is killed, with all that it has started.
        """
        shares = {name: check.share for name, check in checks.items() if check.timed}
        parts: dict[str, list[Finding]] = {name: [] for name in checks}
        for jobs in self._groups(checks):
            for job, found in self._group(jobs, shares):
                parts[job.name].append(found)
                if len(parts[job.name]) == len(job.check.parts):
                    told(job.name, merged(parts[job.name]))

    def _groups(self, checks: Mapping[str, Check]) -> list[list[Job]]:
        jobs = [
            Job(name, part, check, self._folder / _file(name, part), self._clock)
            for name, check in checks.items()
            for part in check.parts
        ]
        if not self._side_by_side:
            return [[job] for job in jobs]
        return [list(batch) for _, batch in itertools.groupby(jobs, lambda job: job.check.batch)]

    def _group(
        self, jobs: Sequence[Job], shares: dict[str, float]
    ) -> Iterator[tuple[Job, Finding]]:
        if self._end - self._clock() < ENOUGH_SECONDS:
            for job in jobs:
                yield job, Finding("skipped", "The time was used up: raise --minutes.")
            return
        try:
            for job in jobs:
                job.start(self._scale)
            self._wait(jobs, STARTING * (self._end - self._clock()), lambda job: job.settled)
            for job in jobs:
                if job.check.timed and not job.ended:
                    left = self._end - self._clock()
                    mine = left * shares[job.name] / sum(shares.values())
                    job.turn.give(mine)
                    self._wait([job], min(1.5 * mine, left), lambda job: job.ended)
                shares.pop(job.name, None)
                yield job, job.found()
        finally:
            for job in jobs:
                job.kill()

    def _wait(self, jobs: Sequence[Job], most: float, done: Callable[[Job], bool]) -> None:
        """Wait until all are done; kill those that are not after so many seconds."""
        end = self._clock() + most
        while not all(done(job) for job in jobs):
            if self._clock() > end:
                for job in jobs:
                    if not done(job):
                        job.kill()
            time.sleep(LOOK_SECONDS)


def _reason(log: str) -> str:
    """Return the first error of a log, which is its cause, or else the log's end."""
    found = re.search(r"\b\w+Error: .+", log)
    return " ".join((found[0][:SHOWN] if found else log[-SHOWN:]).split())


def _file(name: str, part: str) -> str:
    return re.sub(r"\W+", "-", f"{name} {part}".strip()).lower()
