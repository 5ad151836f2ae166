"""What-ifs: a stretch of a recording is simulated again by a process, and kept as a recording."""

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from caesura.intercept.kv.costs import CostModel
from caesura.runtime.errors import UsageError
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.storage import reading
from caesura.runtime.recording.storage.store import Store
from caesura.runtime.whatif.choice import Choice, machine_of
from caesura.runtime.whatif.replays import CHILD, Busy, Replays
from caesura.runtime.whatif.stretch import Stretch, collect, renamed
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


def replays_of(store: Store, **options: Any) -> Replays:
    return Replays(store, lambda: CALIBRATION, **options)


async def finished(replays: Replays) -> Any:
    assert replays._working is not None
    await asyncio.gather(replays._working, return_exceptions=True)
    return replays.job


def test_a_stretch_has_the_sessions_that_arrived_in_it(store: Store, tmp_path: Path) -> None:
    found = collect(store.path, 1, BEGAN - 1, BEGAN + 10, tmp_path / "out.jsonl")
    assert (found.sessions, found.begin, found.seconds) == (("a", "b"), BEGAN, 2.0)
    kept = [json.loads(line)["session"] for line in found.path.read_text().splitlines()]
    assert kept == ["a", "a", "b", "b"]
    with pytest.raises(UsageError, match="no session that has ended arrived from"):
        collect(store.path, 1, BEGAN + 10, BEGAN + 20, tmp_path / "none.jsonl")


def test_a_simulations_entries_get_the_ids_and_times_of_what_was(tmp_path: Path) -> None:
    stretch = Stretch(tmp_path, ("a", "b"), BEGAN, 2.0)
    lanes = {"kind": "lanes", "request": ["0-1", "other"], "at": [0.5, 1.0]}
    (changed,) = renamed([lanes], stretch)
    assert changed["request"] == ["b", "other"] and changed["at"] == [BEGAN + 0.5, BEGAN + 1.0]


def test_whom_a_simulated_request_waited_for_has_its_recorded_id_too(tmp_path: Path) -> None:
    stretch = Stretch(tmp_path, ("a", "b"), BEGAN, 2.0)
    pause = {"kind": "pause", "request": "0-0", "wanted_by": [("0-1", 0.5)]}
    wait = {"kind": "wait", "request": "0-1", "behind": "0-0"}
    ended, waited = renamed([pause, wait], stretch)
    assert ended["wanted_by"] == [["b", 0.5]] and waited["behind"] == "a"


def test_only_policies_that_are_known_by_name_can_be_chosen() -> None:
    assert Choice("preserve").policy == "caesura:handling=preserve,ranking=fcfs,admission=vllm"
    for bad in ({"handling": "os.system"}, {"ranking": "fcfs,prediction=a.b.C"}, {"admission": ""}):
        with pytest.raises(UsageError, match="unknown"):
            Choice(**bad)


def test_a_recording_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(UsageError, match="calibrated for cpu"):
        machine_of(CALIBRATION, path, {**ABOUT, "machine": "H100"})
    with pytest.raises(UsageError, match="does not tell the engine's memory"):
        machine_of(CALIBRATION, path, {})


@pytest.mark.slow
async def test_a_stretch_is_replayed_and_kept(store: Store) -> None:
    replays = replays_of(store)
    replays.start(1, BEGAN - 1, BEGAN + 10, Choice("discard"))
    job = await finished(replays)
    assert (job.state, job.error, job.sessions, job.done) == ("done", "", 2, 1.0)
    made = reading.recording(store.path, job.result)
    assert made is not None and made.source == "what-if" and "discard" in made.title
    assert made.about["replay_of"] == 1 and made.started == BEGAN
    entries = list(reading.entries(store.path, job.result))
    ends = {entry["session"]: entry for entry in entries if entry["kind"] == "session"}
    assert sorted(ends) == ["a", "b"]
    assert [ends[name]["arrival"] for name in "ab"] == pytest.approx([BEGAN, BEGAN + 2])
    pauses = [entry for entry in entries if entry["kind"] == "pause"]
    assert {entry["session"] for entry in pauses} == {"a", "b"}
    assert all(entry["pause_seconds"] == pytest.approx(3.0, abs=0.1) for entry in pauses)


SLEEPER = (
    "import sys, time; sys.stdin.readline(); print('{\"at\": 1}', flush=True); time.sleep(600)"
)


async def under_way(replays: Replays) -> None:
    while replays.job is None or not replays.job.done:
        assert replays.job is None or replays.job.state == "running", replays.job
        await asyncio.sleep(0.01)


async def test_one_at_a_time_and_it_can_be_cancelled(store: Store) -> None:
    replays = replays_of(store, command=(sys.executable, "-c", SLEEPER))
    replays.start(1, -math.inf, math.inf, Choice())
    await under_way(replays)
    with pytest.raises(Busy):
        replays.start(1, 0, 1, Choice())
    await replays.cancel()
    assert replays.job is not None and replays.job.state == "cancelled"
    assert len(reading.recordings(store.path)) == 1


async def test_a_replay_that_takes_too_long_is_ended(store: Store) -> None:
    replays = replays_of(store, command=(sys.executable, "-c", SLEEPER), max_seconds=1.0)
    replays.start(1, -math.inf, math.inf, Choice())
    job = await finished(replays)
    assert job.state == "failed" and "longer than 1 s" in job.error


async def test_a_process_that_dies_is_a_failure(store: Store) -> None:
    replays = replays_of(store, command=(sys.executable, "-c", "import sys; sys.stdin.readline()"))
    replays.start(1, -math.inf, math.inf, Choice())
    job = await finished(replays)
    assert job.state == "failed" and "ended without a result" in job.error


@pytest.mark.parametrize(
    ("recording", "answer", "why"),
    [
        (10**30, "", "too large"),
        (1, "no JSON", "JSONDecodeError"),
        (1, "x" * 100_000, "ValueError"),  # longer than a line may be
    ],
)
async def test_a_replay_that_fails_in_an_unforeseen_way_has_ended(
    store: Store, tmp_path: Path, recording: int, answer: str, why: str
) -> None:
    script = tmp_path / "child.py"
    script.write_text(f"import sys; sys.stdin.readline(); print({answer!r})")
    replays = replays_of(store, command=(sys.executable, str(script)))
    replays.start(recording, -math.inf, math.inf, Choice())
    job = await finished(replays)
    assert job.state == "failed" and why in job.error


async def test_without_a_calibration_there_is_no_replay(store: Store) -> None:
    replays = Replays(store, lambda: None, command=CHILD)
    with pytest.raises(UsageError, match="caesura calibrate"):
        replays.start(1, 0, 1, Choice())
