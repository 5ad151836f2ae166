"""What-ifs: a stretch of a recording is simulated again by a process, and kept as a recording."""

import asyncio
import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.runtime.errors import UsageError
from caesura.runtime.recording import catalog
from caesura.runtime.recording.entries import row_of
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.child import replayed
from caesura.runtime.whatif.choice import Choice, doubts_about, machine_of, recorded_of
from caesura.runtime.whatif.figures import Fared, fared
from caesura.runtime.whatif.replays import MAX_REPLAYS, Busy, Job, Replays
from caesura.runtime.whatif.stretch import DIED, GOES_ON, Stretch, collect, renamed
from caesura.scheduler.calibration import Calibration
from caesura.simulator.policy import Policy
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.work import trace_cell
from caesura.simulator.trace import recording
from caesura.simulator.workload.records import DECODED_NOTHING, LACKS_CALLS
from tests.kit.processes import gone, nothing_left, started
from tests.runtime.whatif.stretches import (
    ABOUT,
    BEGAN,
    CALIBRATION,
    SLEEPER,
    child_of,
    under_way,
)

TIMES = ("base", "per_token", "per_token_beyond", "per_context")


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
    rows = [[0.5, "discard", 3, "admit", 1.0, 2.0, None, "0-1"], [0.6, "swap", 3, "decided"]]
    pause = {"kind": "pause", "request": "0-0", "wanted_by": [("0-1", 0.5)], "decisions": rows}
    wait = {"kind": "wait", "request": "0-1", "behind": "0-0"}
    ended, waited = renamed([pause, wait], stretch)
    assert ended["wanted_by"] == [["b", 0.5]] and waited["behind"] == "a"
    assert [row[-1] for row in ended["decisions"]] == ["b", ""]


def test_only_policies_that_are_known_by_name_can_be_chosen() -> None:
    recorded = recorded_of({"handling": "ttl", "ranking": "ssjf", "most_running": 7})
    made = Choice("preserve").of(recorded)
    assert made.settings == {"handling": "preserve", "ranking": "ssjf", "admission": "vllm"}
    assert made.most_running == 7
    for bad in ({"handling": "os.system"}, {"ranking": "fcfs,prediction=a.b.C"}, {"admission": ""}):
        with pytest.raises(UsageError, match="unknown"):
            Choice(**bad)


def test_the_recorded_policy_has_all_that_the_recording_tells() -> None:
    told = {"ranking": "caesura:beta=50", "retention": 5.0, "chunk": 64, "fair": "tenant"}
    sizes = {"most_running": 3, "most_step_tokens": 512, "prefix_caching": False}
    policy = recorded_of({**ABOUT, "handling": "swap", **told, **sizes})
    assert policy.settings == {"handling": "swap", "admission": "vllm"} | {
        name: told[name] for name in ("ranking", "retention", "chunk")
    }
    assert (policy.most_running, policy.chunk_tokens, policy.prefix_caching) == (3, 512, False)
    (doubt, defaults) = doubts_about({**ABOUT, **told, **sizes, "handling": "swap"})
    assert "fair 'tenant'" in doubt and "does not tell admission" in defaults


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({"ranking": "os.path.Class"}, "is code"),
        ({"prediction": "package.module.Class:x=1"}, "is code"),
        ({"engine": "stock"}, "not of Caesura's"),
        ({"handling": "teapot"}, "handling must be one of"),
        ({"most_running": "many"}, "no engine has most_running 'many'"),
    ],
)
def test_a_recorded_policy_that_cannot_be_replayed(about: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        recorded_of({**ABOUT, **about})


def test_sessions_that_cannot_be_replayed_are_counted_with_the_reason(
    store: Store, tmp_path: Path
) -> None:
    same = {"engine": 0, "arrival": BEGAN + 3}
    nothing = {"kind": "session", "request": "n", "session": "n", "at": BEGAN + 4, **same}
    cut = {"kind": "session", "request": "c2", "session": "c2", "at": BEGAN + 9, **same}
    lanes = {"kind": "lanes", "request": ["a", "open"], "at": [BEGAN, BEGAN + 5], "engine": 0}
    entries = [
        nothing | {"given_tokens": 9, "decoded_tokens": 0, "calls": 0},
        cut | {"given_tokens": 9, "decoded_tokens": 4, "calls": 2},
        lanes | {"state": ["waiting", "waiting"]},
    ]
    store.append(1, [row_of(entry) for entry in entries])
    found = collect(store.path, 1, BEGAN - 1, BEGAN + 10, tmp_path / "out.jsonl")
    assert found.sessions == ("a", "b")
    assert found.left_out == {DECODED_NOTHING: 1, LACKS_CALLS: 1, GOES_ON: 1}


def test_a_session_that_outlived_its_engine_is_not_left_out(store: Store, tmp_path: Path) -> None:
    names = ["session-x-1", "session-y-2", "late"]
    lanes = {"kind": "lanes", "request": names, "state": ["decode"] * 3, "engine": 0}
    died = {"kind": "restart", "at": BEGAN + 4, "state": "down"}
    went_on = {"kind": "continued", "request": "session-z", "lost": "session-x", "at": BEGAN + 5}
    entries = [lanes | {"at": [BEGAN + 1, BEGAN + 2, BEGAN + 6]}, died, went_on]
    store.append(1, [row_of(entry) for entry in entries])
    found = collect(store.path, 1, BEGAN - 1, BEGAN + 10, tmp_path / "out.jsonl")
    assert found.left_out == {DIED: 1, GOES_ON: 1}


def test_how_sessions_fared_is_read_from_their_records(store: Store) -> None:
    lanes = {"kind": "lanes", "request": ["a", "a", "a"], "state": ["waiting", "decode", "decode"]}
    store.append(1, [row_of(lanes | {"at": [BEGAN, BEGAN + 0.25, BEGAN + 4]})])
    found = fared(catalog.entries(store.path, 1), {"a", "b"})
    # From its arrival to its end six seconds later, less three of its tool.
    assert found.latency == {"a": 3.0, "b": 3.0} and found.ttft == {"a": 0.25}
    other = Fared({"a": 3.001, "b": 1.0})
    assert found.against(other, "ab") == {"faster": 0, "slower": 1}
    assert other.figures("ab")["latency_p50"] == pytest.approx(2.0005)


# -- the sign ------------------------------------------------------------------------------------


def simulated(policy: Policy, calibration: Calibration, path: Path) -> tuple[RunResult, Any]:
    """A real run that is a simulation: nine seconds of sessions in a memory that is too small."""
    calibration.save(path)
    machine = f"calibration:path={path},kv=6400,host=0,link=1"
    cell = Cell("mix:tools=qa+math", None, machine, policy, 2.0, 0, 9.0)
    run = trace_cell(cell, lambda _: None)
    return run, recording(run, len(run.records))["about"] | {"machine": CALIBRATION.device}


def mean_latency(run: RunResult) -> float:
    return sum(one.latency for one in run.sessions) / len(run.sessions)


def test_a_what_if_says_the_same_as_the_other_policy_does_in_truth(tmp_path: Path) -> None:
    """The machine that was recorded is three times as slow as its calibration says.

    So the replay of the worse policy is faster than what was recorded, and yet it is worse.
    """
    cost = CALIBRATION.cost
    slow = replace(CALIBRATION, cost=replace(cost, **{f: 3 * getattr(cost, f) for f in TIMES}))
    ours = Policy("ours", settings={"handling": "caesura"}, most_running=64)
    theirs = Policy("theirs", settings={"handling": "preserve"}, most_running=64)
    run, about = simulated(ours, slow, tmp_path / "slow.json")
    truth, _ = simulated(theirs, slow, tmp_path / "slow.json")
    store = Store(tmp_path / "traces.sqlite")
    number = store.begin("what was", "serve", about, started=0.0)
    store.append(number, [row_of(entry) for entry in run.records])
    store.end(number, run.totals.seconds)

    replays = replays_of(store)
    job = Job(number, -1.0, 1000.0, (Choice("preserve"), Choice("caesura")), 0.0)
    task = json.loads(json.dumps(replays._task(job, tmp_path)))
    made = replayed(task, job.moved)
    job.end(json.loads(json.dumps(made)))
    told = job.public()

    # What was recorded is replayed too, once; what was chosen again is not.
    assert [one["policies"]["handling"] for one in told["replays"]] == ["caesura", "preserve"]
    assert told["compared"] == told["sessions"] == len(run.sessions)
    # As the engine saw it: what comes during a step is seen at the step's end.
    assert told["was"]["latency_mean"] == pytest.approx(mean_latency(run), rel=0.05)
    was, (same, other) = (
        told["was"]["latency_mean"],
        [one["latency_mean"] for one in told["replays"]],
    )
    assert mean_latency(truth) > 1.1 * mean_latency(run)
    assert other < was, "else the recording itself would give the right answer"
    assert other > 1.1 * same
    assert told["replays"][1]["slower"] > told["replays"][1]["faster"]
    assert same < 0.6 * was  # the replay's error
    titles = [catalog.recording(store.path, one["result"]) for one in told["replays"]]
    assert [one and one.title for one in titles] == [
        f"What if: {name} ({len(run.sessions)} sessions of recording 1)"
        for name in ("as recorded", "handling preserve, ranking fcfs, admission vllm")
    ]


def test_the_replay_of_a_simulation_as_it_was_is_that_simulation(tmp_path: Path) -> None:
    ours = Policy("ours", settings={"handling": "caesura"}, most_running=8, chunk_tokens=256)
    run, about = simulated(ours, CALIBRATION, tmp_path / "fast.json")
    store = Store(tmp_path / "traces.sqlite")
    number = store.begin("what was", "serve", about, started=0.0)
    store.append(number, [row_of(entry) for entry in run.records])
    job = Job(number, -1.0, 1000.0, (), 0.0)
    made = replayed(replays_of(store)._task(job, tmp_path), lambda _: None)
    assert made["replays"][0]["latency_mean"] == pytest.approx(
        made["was"]["latency_mean"], rel=0.02
    )


def test_a_recording_of_another_machine_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(UsageError, match="calibrated for cpu"):
        machine_of(CALIBRATION, path, {**ABOUT, "machine": "H100"})
    with pytest.raises(UsageError, match="does not tell the engine's memory"):
        machine_of(CALIBRATION, path, {})


@pytest.mark.slow
async def test_a_stretch_is_replayed_and_kept(store: Store) -> None:
    replays = replays_of(store)
    replays.start(1, BEGAN - 1, BEGAN + 10, [Choice("discard")])
    job = (await finished(replays)).public()
    assert (job["state"], job["error"], job["sessions"], job["done"]) == ("done", "", 2, 1.0)
    same, other = [catalog.recording(store.path, one["result"]) for one in job["replays"]]
    assert same is not None and "as recorded" in same.title
    assert other is not None and other.source == "what-if" and "discard" in other.title
    assert other.about["replay_of"] == 1 and other.started == BEGAN
    entries = list(catalog.entries(store.path, int(other.id)))
    ends = {entry["session"]: entry for entry in entries if entry["kind"] == "session"}
    assert sorted(ends) == ["a", "b"]
    assert [ends[name]["arrival"] for name in "ab"] == pytest.approx([BEGAN, BEGAN + 2])
    pauses = [entry for entry in entries if entry["kind"] == "pause"]
    assert {entry["session"] for entry in pauses} == {"a", "b"}
    assert all(entry["pause_seconds"] == pytest.approx(3.0, abs=0.1) for entry in pauses)


async def test_one_at_a_time_and_it_can_be_cancelled(store: Store, tmp_path: Path) -> None:
    replays = replays_of(store, start=child_of(tmp_path, SLEEPER))
    replays.start(1, -math.inf, math.inf, [Choice()])
    await under_way(replays)
    with pytest.raises(Busy):
        replays.start(1, 0, 1, [Choice()])
    await replays.cancel()
    assert replays.job is not None and replays.job.state == "cancelled"
    assert len(catalog.recordings(store.path)) == 1


async def test_a_replay_that_takes_too_long_is_ended(store: Store, tmp_path: Path) -> None:
    async with nothing_left():
        replays = replays_of(store, start=child_of(tmp_path, SLEEPER), max_seconds=1.0)
        replays.start(1, -math.inf, math.inf, [Choice()])
        job = await finished(replays)
    assert job.state == "failed" and "longer than 1 s" in job.error


@pytest.mark.parametrize(
    ("recording", "does", "why"),
    [
        (10**30, "pass", "too large"),
        (1, "os._exit(7)", r"ended (7)"),
        (1, "sys.exit('my last words')", "SystemExit: my last words"),
        (1, "raise MemoryError", "needs more than 8 GiB of memory"),
        (1, "raise ValueError('no such rate')", "ValueError: no such rate"),
        (1, "return object()", "not JSON serializable"),
        (1, "tell({'no': 'progress'})", "KeyError"),
    ],
)
async def test_a_replay_that_fails_in_an_unforeseen_way_has_ended(
    store: Store, tmp_path: Path, recording: int, does: str, why: str
) -> None:
    module = f"import os, sys\n\ndef replay(task, tell):\n    {does}\n"
    async with nothing_left():
        replays = replays_of(store, start=child_of(tmp_path, module))
        replays.start(recording, -math.inf, math.inf, [Choice()])
        job = await finished(replays)
    assert job.state == "failed" and why in job.error


SERVER = """
import asyncio, sys
from pathlib import Path
from caesura.runtime.recording.storage import Store
from caesura.runtime.whatif.choice import Choice
from tests.runtime.whatif.test_replays import SLEEPER, child_of, replays_of, under_way

async def serve(folder):
    replays = replays_of(Store(folder / "traces.sqlite"), start=child_of(folder, SLEEPER))
    replays.start(1, 0, 2e9, [Choice()])
    await under_way(replays)
    print("under way", flush=True)
    await asyncio.sleep(600)

asyncio.run(serve(Path(sys.argv[1])))
"""


def test_no_replay_outlives_a_server_that_is_killed(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{Path.cwd()}:{os.environ.get('PYTHONPATH', '')}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None and server.stdout.readline() == b"under way\n"
        below = started(server.pid)
        assert len(below) == 2  # the process and its keeper
        server.kill()
    assert asyncio.run(gone(below))


async def test_without_a_calibration_there_is_no_replay(store: Store) -> None:
    replays = Replays(store, lambda: None)
    with pytest.raises(UsageError, match="caesura calibrate"):
        replays.start(1, 0, 1, [Choice()])
    replays = replays_of(store)
    with pytest.raises(UsageError, match=f"at most {MAX_REPLAYS - 1} policies"):
        replays.start(1, 0, 1, [Choice()] * MAX_REPLAYS)
