"""Running the checks, one child process after the other, within the time."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.gpu_check.checks import Check
from benchmarks.gpu_check.finding import Finding

TAIL = 1500
"""The characters of a failed check's log that its finding shows."""
ENOUGH_SECONDS = 20.0
"""A check that has less time left is not begun."""


class Runner:
    """Runs checks whose results and logs go into a folder; `clock` returns seconds."""

    def __init__(
        self, folder: Path, scale: str, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._scale = scale
        self._clock = clock
        self._end = clock() + seconds

    def run(self, checks: Mapping[str, Check], told: Callable[[str, Finding], None]) -> None:
        """Run the checks in order, and tell what each found; the shares divide what time is left.

        A check that exceeds its share by half is killed, with all that it has started.
        """
        shares = {name: check.share for name, check in checks.items()}
        for name in checks:
            left = self._end - self._clock()
            mine = left * shares[name] / sum(shares.values())
            del shares[name]
            if left < ENOUGH_SECONDS:
                told(name, Finding("skipped", "The time was used up: raise --minutes."))
                continue
            told(name, self._one(name, mine, min(1.5 * mine, left)))

    def _one(self, name: str, seconds: float, most: float) -> Finding:
        out, log = self._folder / f"{name}.json", self._folder / f"{name}.log"
        out.unlink(missing_ok=True)
        command = [sys.executable, "-m", "benchmarks.gpu_check.child", name]
        command += ["--scale", self._scale, "--seconds", f"{seconds:.0f}", "--out", str(out)]
        began = self._clock()
        with log.open("w") as file:
            child = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code = child.wait(timeout=most)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(child)
        took = self._clock() - began
        try:
            return Finding.load(out)
        except (OSError, ValueError):
            why = "It took too long" if code is None else f"It ended with exit code {code}"
            tail = " ".join(log.read_text(errors="replace")[-TAIL:].split())
            return Finding("failed", f"{why}; {log.name} ends with: {tail}", seconds=took)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a child and of the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
