"""What was committed is there after `kill -9`, whenever that comes."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from caesura.runtime.recording import catalog
from caesura.runtime.recording.storage import Store

ROOT = Path(__file__).parents[3]


def write_and_kill(path: Path, seconds: float) -> tuple[int, int]:
    """Let a process write for a while and kill it; its recording, and what it had committed."""
    command = [sys.executable, "-m", "tests.runtime.recording.writer", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline()]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        told += process.stdout.readlines()
    whole = [line for line in told if line.endswith("\n")]
    made, count = map(int, whole[-1].split())
    return made, count


def check(path: Path, made: int, count: int) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = catalog.recording(path, made)
    assert found is not None and not found.live
    # A batch may be committed and not yet told.
    assert found.entries + found.trimmed >= count
    numbers = [each["n"] for each in catalog.entries(path, made) if "n" in each]
    assert len(numbers) == found.entries
    assert numbers == list(range(found.trimmed, found.trimmed + found.entries))


def test_a_killed_writer_loses_nothing_that_it_had_written(path: Path) -> None:
    made, count = write_and_kill(path, 0.1)
    check(path, made, count)
    store = Store(path)
    assert store.begin("next", "serve") == made + 1
    store.close()


@pytest.mark.slow
def test_at_any_moment(path: Path) -> None:
    rng = random.Random(5)
    for _ in range(25):
        made, count = write_and_kill(path, rng.uniform(0.0, 0.25))
        check(path, made, count)
