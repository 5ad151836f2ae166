"""Whole runs on engines that fail in every way: no request is lost, none is done twice."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caesura.planning.application.requests import Request
from caesura.planning.plan import Placement, Plan
from caesura.planning.run.journal import Journal, OutputError, Result, RunError, events_path
from caesura.planning.search.follow import Turn
from caesura.planning.stage_times import Progress
from tests.kit.waiting import until
from tests.planning.run.applications import request, requests
from tests.planning.run.carried import MODELS, plan, run
from tests.planning.run.engines import FakeHost


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(tmp_path: Path, name: str) -> list[dict[str, Any]]:
    return [row for row in rows(events_path(tmp_path / "out.jsonl")) if row["event"] == name]


def assert_each_once(tmp_path: Path, asked: Iterable[Request]) -> None:
    keys = Counter(row["key"] for row in rows(tmp_path / "out.jsonl"))
    assert keys == Counter(each.key for each in asked)


async def test_stages_follow_one_another_on_the_same_devices(tmp_path: Path) -> None:
    host = FakeHost(2)
    asked = (*requests("a", "b"), *(request(f"c/{n}", f"a/{n}", f"b/{n}") for n in range(3)))
    done = await run(tmp_path, host, plan(("a", "b"), [Placement("c", 2)]), asked)
    assert_each_once(tmp_path, asked)
    assert done["c/1"].output == "<c/1 <a/1> <b/1>>"
    models = [[one["model"] for one in stage["placements"]] for stage in events(tmp_path, "stage")]
    assert models[0] == ["a", "b"]
    assert models[-1] == ["c"]
    assert host.closed
    assert [row["event"] for row in rows(events_path(tmp_path / "out.jsonl"))][-1] == "finished"


async def test_models_that_finish_in_another_order_leave_their_devices(tmp_path: Path) -> None:
    host = FakeHost(2)
    host.holds = True
    asked = requests(*MODELS)
    planned = plan(("a", "b"), ("b", "c"))  # a is expected to finish first
    running = asyncio.ensure_future(run(tmp_path, host, planned, asked))
    await until(lambda: "b-0" in host.engines and host.engines["b-0"].asked)
    host.engines["b-0"].held.set()
    await until(lambda: "c-0" in host.engines)
    assert host.placed["c-0"] == (1,), "c takes the device that b has left"
    for engine in host.engines.values():
        engine.held.set()
    await running
    assert_each_once(tmp_path, asked)
    assert Counter(host.calls)["load", "a-0"] == 1


async def test_an_unexpected_order_may_lead_to_a_better_plan(tmp_path: Path) -> None:
    host = FakeHost(1)
    asked = requests(*MODELS)
    planned = plan("a", "b", "c", devices=1)
    first, *others = planned.stages
    planned = replace(planned, stages=(replace(first, finishes=("b",)), *others))
    told: list[tuple[str, ...]] = []

    def better(old: Plan, turn: Turn, progress: Progress) -> Plan | None:
        told.append(tuple(one.model for one in turn.placements))
        assert set(progress.finished) == {"a/0", "a/1", "a/2"}
        return plan("c", "b", devices=1)

    await run(tmp_path, host, planned, asked, better=better)
    assert_each_once(tmp_path, asked)
    assert told == [("b",)], "it is asked once, when a has finished instead of b"
    assert [name for call, name in host.calls if call == "load"] == ["a-0", "c-0", "b-0"]
    (replanned,) = events(tmp_path, "replanned")
    assert replanned["reason"] == "a finished before b"


async def test_a_replica_that_the_next_stage_shares_is_not_loaded_again(tmp_path: Path) -> None:
    host = FakeHost(2)
    asked = (*requests("a", rows=2), *requests("b", rows=40))
    host.seconds = 0.01
    await run(tmp_path, host, plan(("a", "b"), [Placement("b", 2)]), asked)
    assert_each_once(tmp_path, asked)
    loads = [name for call, name in host.calls if call == "load"]
    assert loads == ["a-0", "b-0", "b-1"]


async def test_a_killed_engine_is_loaded_again_and_its_requests_are_done_once(
    tmp_path: Path,
) -> None:
    host = FakeHost(1)
    host.holds = True
    asked = requests("a", rows=8)
    running = asyncio.ensure_future(run(tmp_path, host, plan("a", devices=1), asked))
    await until(lambda: "a-0" in host.engines)
    await host.engines["a-0"].until_asked(4)
    host.holds = False
    await host.kill("a-0")
    done = await running
    assert_each_once(tmp_path, asked)
    assert {result.replica for result in done.values()} == {"a-1"}
    (lost,) = events(tmp_path, "lost")
    assert lost["replica"] == "a-0"


async def test_an_engine_that_ends_while_it_is_idle_is_seen(tmp_path: Path) -> None:
    host = FakeHost(2)
    asked = (request("a/0"), request("b/0", "a/0"))
    host.holds = True
    running = asyncio.ensure_future(run(tmp_path, host, plan(("a", "b")), asked))
    await until(lambda: len(host.engines) == 2)
    await host.kill("b-0")
    await until(lambda: "b-1" in host.engines)
    for engine in host.engines.values():
        engine.held.set()
    await running
    assert_each_once(tmp_path, asked)


async def test_an_engine_that_ends_again_and_again_ends_the_run(tmp_path: Path) -> None:
    host = FakeHost(1)
    host.holds = True

    async def kill_all() -> None:
        while True:
            await asyncio.sleep(0.01)
            for engine in list(host.engines.values()):
                if engine.asked and engine.runs:
                    await engine.stop()

    killing = asyncio.ensure_future(kill_all())
    with pytest.raises(RunError, match=r"3 engines of a have ended .* the last one, a-2"):
        await run(tmp_path, host, plan("a", devices=1), requests("a"))
    killing.cancel()
    assert host.closed


async def test_a_model_that_cannot_be_loaded_ends_the_run_and_keeps_the_rest(
    tmp_path: Path,
) -> None:
    host = FakeHost(1)
    asked = requests("a", "b")
    host.fail_loads = 1
    planned = plan("a", "b", devices=1)
    await run(tmp_path, host, planned, asked[:3])
    assert len(events(tmp_path, "not loaded")) == 1, "a second start may succeed"
    host.fail_loads = 2
    with pytest.raises(RunError, match="b-0 can't be loaded: b-0 did not start: told to"):
        await run(tmp_path, host, planned, asked)
    assert_each_once(tmp_path, asked[:3])


async def test_a_second_run_does_what_the_first_has_left(tmp_path: Path) -> None:
    host = FakeHost(1)
    host.seconds = 0.02
    asked = requests("a", rows=20)
    running = asyncio.ensure_future(run(tmp_path, host, plan("a", devices=1), asked))
    await until((tmp_path / "out.jsonl").exists)
    await until(lambda: len(rows(tmp_path / "out.jsonl")) >= 4)
    running.cancel()  # as Ctrl-C does
    with pytest.raises(asyncio.CancelledError):
        await running
    assert host.closed
    first = rows(tmp_path / "out.jsonl")
    assert 4 <= len(first) < 20
    again = FakeHost(1)
    await run(tmp_path, again, plan("a", devices=1), asked)
    assert_each_once(tmp_path, asked)
    assert rows(tmp_path / "out.jsonl")[: len(first)] == first
    assert events(tmp_path, "started")[1]["done"] == len(first)


async def test_a_finished_run_loads_nothing_again(tmp_path: Path) -> None:
    await run(tmp_path, FakeHost(1), plan("a", devices=1), requests("a"))
    again = FakeHost(1)
    await run(tmp_path, again, plan("a", devices=1), requests("a"))
    assert again.calls == []


async def test_a_device_that_goes_away_leaves_the_rest_to_the_others(tmp_path: Path) -> None:
    host = FakeHost(2)
    host.seconds = 0.02
    asked = requests("a", "b", rows=20)
    told: list[tuple[int, int]] = []
    loaded: list[tuple[Placement, ...]] = []

    def replan(progress: Progress, devices: int) -> Plan:
        told.append((len(progress.finished), devices))
        loaded.append(progress.loaded)
        return plan("b", "a", devices=devices)

    running = asyncio.ensure_future(
        run(tmp_path, host, plan(("a", "b")), asked, replan=replan),
    )
    await until(lambda: len(host.engines) == 2)
    await asyncio.sleep(0.05)
    await host.lose_device(0)
    await running
    assert_each_once(tmp_path, asked)
    ((finished, devices),) = told
    assert devices == 1 and finished < 40
    assert loaded == [(Placement("b"),)], "the engine of a went away with its device"
    assert events(tmp_path, "devices")[0]["usable"] == [1]
    assert events(tmp_path, "replanned")[0]["reason"] == "device 0 went away"


async def test_a_run_without_devices_ends(tmp_path: Path) -> None:
    host = FakeHost(1)
    host.gone.add(0)
    with pytest.raises(RunError, match="no device is left of 1"):
        await run(tmp_path, host, plan("a", devices=1), requests("a"))


async def test_a_plan_whose_models_wait_for_others_ends_instead_of_hanging(tmp_path: Path) -> None:
    host = FakeHost(1)
    with pytest.raises(RunError, match=r"stage 1 of the plan can't go on"):
        await run(tmp_path, host, plan("b", devices=1), (request("a/0"), request("b/0", "a/0")))


async def test_a_full_disk_stops_the_run_and_its_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = FakeHost(1)
    written = 0
    append = Journal.append

    async def full(journal: Journal, result: Result) -> None:
        nonlocal written
        written += 1
        if written > 3:
            raise OutputError("out.jsonl can't be written: no space")
        await append(journal, result)

    with monkeypatch.context() as patched, pytest.raises(OutputError):
        patched.setattr(Journal, "append", full)
        await run(tmp_path, host, plan("a", devices=1), requests("a", rows=9))
    assert host.closed
    assert len(rows(tmp_path / "out.jsonl")) == 3
    await run(tmp_path, FakeHost(1), plan("a", devices=1), requests("a", rows=9))
    assert_each_once(tmp_path, requests("a", rows=9))
