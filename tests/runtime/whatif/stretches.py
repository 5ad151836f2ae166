"""A recording of three sessions, and what replays of its stretches need."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.processes.worker import Worker
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.replays import Replays
from caesura.scheduler.calibration import Calibration

BEGAN = 1_700_000_000.0
ABOUT = {"total_blocks": 200, "block_size": 16, "host_blocks": 0, "machine": "cpu"}
CALIBRATION = Calibration(
    model="m",
    dtype="float32",
    device="cpu",
    vllm_version="0",
    block_size=16,
    bytes_per_token=1024,
    date="2026-01-01",
    cost=CostModel(0.01, 1e-4, 2e-4, 1e-7, 512),
    step_error=0.0,
    out_error=0.0,
    in_error=0.0,
    steps=(),
    copies=(),
)


def session(name: str, arrival: float) -> list[dict[str, Any]]:
    """A session that pauses once for a search of three seconds."""
    same = {"request": name, "session": name, "arrival": BEGAN + arrival, "engine": 0}
    return [
        {"kind": "pause", "at": BEGAN + arrival + 1, "tool": "search", "given_tokens": 100}
        | {"decoded_tokens": 20, "pause_seconds": 3.0, "outcome": "resumed"}
        | same,
        {"kind": "session", "at": BEGAN + arrival + 6, "given_tokens": 30, "decoded_tokens": 10}
        | {"calls": 1, "outcome": "stop"}
        | same,
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "traces.sqlite")
    number = made.begin("what was", "serve", ABOUT, started=BEGAN)
    entries = [each for name, at in (("a", 0), ("b", 2), ("c", 50)) for each in session(name, at)]
    made.append(number, [row_of(entry) for entry in entries])
    made.end(number, BEGAN + 60)
    return made


SLEEPER = """
import time

def replay(task, tell):
    tell({"replay": 0, "at": 1})
    time.sleep(600)
"""


def child_of(folder: Path, module: str) -> Callable[[], Awaitable[Worker]]:
    """Return what starts a process of a module's text."""
    (folder / "faked_replay.py").write_text(module)
    environment = {"PYTHONPATH": str(folder)}
    return lambda: Worker.spawn("faked_replay", environment=environment)


async def under_way(replays: Replays) -> None:
    while replays.job is None or not replays.job.done:
        assert replays.job is None or replays.job.state == "running", replays.job
        await asyncio.sleep(0.01)
