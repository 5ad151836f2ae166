"""The records of pauses and steps tell what really happened."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import inf
from typing import Any

import pytest

from caesura.intercept.kv.views import Decision, PausedKVView, Prices, StepView
from caesura.intercept.kv.waste import prices
from caesura.scheduler.records import PauseRecord, StepsRecord, parse
from caesura.scheduler.vllm.engine.sessions.recorder import Recorder
from tests.scheduler.clients import random_session

from .link import random_pace
from .steering import (
    CALL,
    IN_EVERY_MODE,
    Chosen,
    choose,
    evict,
    step_until,
    swap_out,
    until_paused,
)
from .whims import Whims
from .world import Session, World, make_scheduler

STEP_COLUMNS = tuple(each.name for each in fields(StepsRecord))
PURPOSES = ("decode_tokens", "prefill_tokens", "recompute_tokens")


class Counting(World):
    """Counts what it was told to do, step by step, to compare it with the records."""

    tick = 1.0

    def __init__(self, scheduler: Any, depth: int = 0) -> None:
        super().__init__(scheduler, depth)
        self.scheduled: list[int] = []

    def step(self) -> int:
        self.now += self.tick - 1.0
        tokens = super().step()
        self.scheduled += [tokens] if tokens else []
        return tokens

    def of(self, kind: str) -> Iterator[dict[str, Any]]:
        return (record for record in self.records if record["kind"] == kind)

    def column(self, name: str) -> list[float]:
        return [value for record in self.of("steps") for value in record[name]]

    def flush(self) -> None:
        """Run to the end, when all records have left."""
        self.run(3000)
        for _ in range(self.depth + 2):
            self.step()
        self.drain()
        assert not self.scheduler.connector.outbox


def make_world(asynchronous: bool = False, depth: int = 0, **options: Any) -> Counting:
    given = {"blocks": 40, "max_model_len": 320, "host_blocks": 100}
    return Counting(make_scheduler(asynchronous=asynchronous, **{**given, **options}), depth)


def paused(world: World, name: str = "a", start: int = 0) -> Session:
    session = world.session(name, range(start, start + 120), CALL, "x" * 30, " done")
    until_paused(world, session)
    return session


@IN_EVERY_MODE
@pytest.mark.parametrize("seed", range(6))
def test_steps_are_what_was_scheduled(asynchronous: bool, depth: int, seed: int) -> None:
    """At random, in a pool that is large enough for nobody to be preempted."""
    rng = random.Random(seed)
    world = make_world(
        asynchronous,
        depth,
        blocks=400,
        max_model_len=512,
        max_num_batched_tokens=rng.choice([32, 512]),
        prefix_caching=rng.random() < 0.7,
        in_step=rng.random() < 0.5,
    )
    manager = world.scheduler.parts.manager
    manager.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    for index in range(120):
        if rng.random() < 0.2:
            random_session(world, rng, index)
        world.step()
        if rng.random() < 0.1:
            evict(world)
        for session in world.sessions.values():
            if session.paused and not session.finished and rng.random() < 0.2:
                world.answer(session)
    world.flush()
    for record in world.of("steps"):
        assert {len(record[name]) for name in STEP_COLUMNS} == {len(record["at"])}
    by_purpose = zip(*(world.column(name) for name in PURPOSES), strict=True)
    assert [sum(tokens) for tokens in by_purpose] == world.scheduled
    most = world.column("budget_tokens")
    assert all(tokens <= budget for tokens, budget in zip(world.scheduled, most, strict=True))
    assert 0 < max(most) <= world.scheduler.max_num_scheduled_tokens
    assert all(tokens >= 0 for name in PURPOSES for tokens in world.column(name))
    if not depth:  # else steps in flight run past a pause, and that is computed again as well
        assert sum(world.column("recompute_tokens")) == sum(world.computed_again.values())
    recomputed = sum(record["recomputed_tokens"] for record in world.of("pause"))
    assert sum(world.column("recompute_tokens")) == recomputed
    assert world.column("at") == sorted(world.column("at"))
    for saved, loaded, budget in zip(
        *(world.column(f"{name}_blocks") for name in ("saved", "loaded", "budget")), strict=True
    ):
        assert saved + loaded <= max(1, budget)
    json.dumps(world.records)


def test_a_budget_is_vllms_or_our_smaller_one() -> None:
    """A chunk is cut while others decode, and nothing is cut for the first prompt."""
    world = make_world(blocks=400, max_model_len=512, max_num_batched_tokens=256, chunk=64)
    world.session("busy", range(5000, 5010), "y" * 100)
    step_until(world, lambda: bool(world.scheduler.running))
    world.session("long", range(400), "y")
    world.flush()
    assert set(world.column("budget_tokens")) == {256, 64}
    cut = [
        tokens
        for tokens, most in zip(world.scheduled, world.column("budget_tokens"), strict=True)
        if tokens == most
    ]
    assert cut, "the long prompt fills steps up to the limit"


@pytest.mark.parametrize("in_step", [True, False])
def test_copies_are_those_that_the_link_made(in_step: bool) -> None:
    """Blocks ordered in steps that compute nothing are in no record of a step, but copied."""
    world = make_world(in_step=in_step)
    other = world.session("busy", range(5000, 5010), "y" * 250)
    a = paused(world)
    swap_out(world, a)
    world.answer(a)
    step_until(world, lambda: a.finished)
    assert not other.finished, "every step has to compute something"
    world.flush()
    assert sum(world.column("saved_blocks")) == world.link.saved == 8
    assert sum(world.column("loaded_blocks")) == world.link.loaded == 8


@IN_EVERY_MODE
@pytest.mark.parametrize("fits_a_step", [True, False])
def test_recomputation_is_told_from_prefill(
    asynchronous: bool, depth: int, fits_a_step: bool
) -> None:
    tokens = 512 if fits_a_step else 64
    world = make_world(asynchronous, depth, max_num_batched_tokens=tokens)
    a = paused(world)
    world.drop_kv("a")
    evict(world)
    world.answer(a)
    world.flush()
    assert 136 <= world.computed_again["a"] <= 136 + depth
    assert sum(world.column("recompute_tokens")) == 136
    (pause,) = world.of("pause")
    assert pause["recomputed_tokens"] == 136
    assert pause["handling"] == "discard"


@IN_EVERY_MODE
@pytest.mark.parametrize("seed", range(6))
def test_pauses_under_pressure(asynchronous: bool, depth: int, seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(asynchronous, depth, blocks=40, max_model_len=512)
    world.scheduler.parts.manager.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    for index in range(200):
        if rng.random() < 0.2:
            random_session(world, rng, index)
        world.step()
        for session in world.sessions.values():
            if session.paused and not session.finished and rng.random() < 0.1:
                world.answer(session)
    world.flush()
    pauses = list(world.of("pause"))
    resumed = [report.get("resume") for s in world.sessions.values() for report in s.reports]
    assert len(pauses) == sum(resume is not None for resume in resumed) > 10
    for pause in pauses:
        assert pause["regret"] is not None or not pause["recomputed_tokens"]
        assert pause["regret"] is None or pause["regret"] >= 0
        tells_one_story(pause)
        assert pause["pause_seconds"] >= 0 and pause["queue_seconds"] >= 0
        times = [at for at, *_ in pause["decisions"]]
        assert times == sorted(times) and all(at >= 0 for at in times)
        assert all(blocks >= 0 for _, _, blocks, *_ in pause["decisions"])
        assert pause["loaded_tokens"] + pause["recomputed_tokens"] <= pause["context_tokens"]
        assert pause["outcome"] == "resumed"
    json.dumps(pauses)


def tells_one_story(pause: dict[str, Any]) -> None:
    """Assert that a pause's cost, its regret and those who wanted its memory agree."""
    lasted = pause["pause_seconds"] + pause["queue_seconds"]
    worked = pause["loaded_tokens"] or pause["recomputed_tokens"]
    wanted = pause["wanted_seconds"]
    near = 1e-6 * max(1.0, pause["cost"])
    assert wanted > 0 or worked or not pause["regret"], "regret, though nobody wanted it"
    assert (wanted > 0) >= (pause["wanted_requests"] > 0)
    assert 0 <= wanted <= lasted + 1e-6
    assert len(pause["wanted_by"]) == min(5, pause["wanted_requests"])
    assert all(0 < s <= lasted + 1e-6 for _, s in pause["wanted_by"])
    assert pause["request"] not in {who for who, _ in pause["wanted_by"]}
    assert pause["work_cost"] > 0 or not worked
    memory = pause["cost"] - pause["queue_cost"] - pause["work_cost"]
    assert -near <= memory <= pause["blocks"] * pause["pause_seconds"] + near
    assert wanted > 0 or memory + pause["queue_cost"] <= near


def test_where_nobody_lacks_blocks_keeping_costs_nothing() -> None:
    world = make_world(pause_deadline=0.0)
    a = paused(world)
    world.now += 2000
    world.answer(a)
    world.flush()
    (pause,) = world.of("pause")
    assert pause["handling"] == "preserve"
    assert (pause["cost"], pause["hindsight"], pause["regret"]) == (0, None, None)
    assert (pause["wanted_seconds"], pause["wanted_requests"], pause["wanted_by"]) == (0, 0, [])


@pytest.mark.parametrize("action", ["discard", "swap"])
def test_what_is_given_up_for_nobody_is_regretted(action: Any) -> None:
    world = make_world(pause_deadline=0.0)
    choose(world, a=action)
    a = paused(world)
    for _ in range(4):
        world.step()
    evict(world)
    world.answer(a)
    world.flush()
    (pause,) = world.of("pause")
    assert pause["handling"] == action
    assert pause["hindsight"]["preserve"] == 0
    assert pause["regret"] == pause["cost"] > 0
    assert pause["wanted_seconds"] == 0


class Keeping(Chosen):
    """Gives up blocks to running requests only."""

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        return super().victims(paused, step, needed, forced) if forced else []


@IN_EVERY_MODE
def test_who_lacked_blocks_that_a_pause_kept(asynchronous: bool, depth: int) -> None:
    """`late` lacks blocks beside the paused `a`, until `a` comes back and ends."""
    world = make_world(asynchronous, depth, blocks=31, max_overtaken_seconds=1e6)
    world.scheduler.parts.manager.handling = Keeping()
    world.session("runs", range(5000, 5100), "y" * 200)
    a = paused(world)
    world.session("late", range(9000, 9230), "y")
    for _ in range(20):
        world.step()
    world.answer(a)
    world.flush()
    (pause,) = world.of("pause")
    assert pause["wanted_requests"] == 1
    ((who, seconds),) = pause["wanted_by"]
    assert who == "late"
    assert 15 <= seconds <= pause["pause_seconds"] + pause["queue_seconds"]
    assert seconds == pytest.approx(pause["wanted_seconds"])
    assert 0 < pause["cost"] <= pause["blocks"] * (seconds + pause["queue_seconds"])
    assert pause["cost"] == pause["hindsight"]["preserve"]
    best = min(price for price in pause["hindsight"].values() if price is not None)
    assert pause["regret"] == max(0, pause["cost"] - best)


def test_a_discard_that_let_others_run_is_weighed_against_their_waiting() -> None:
    """What `a` gives up is used at once. Had it kept that, `late` had waited."""
    world = make_world(blocks=31, max_overtaken_seconds=1e6)
    choose(world)
    world.session("runs", range(5000, 5100), "y" * 200)
    a = paused(world)
    world.session("late", range(9000, 9200), "y" * 50)
    for _ in range(20):
        world.step()
    world.answer(a)
    world.flush()
    (pause,) = world.of("pause")
    assert pause["decisions"] and pause["recomputed_tokens"] > 0
    admitted = [row[-1] for row in pause["decisions"] if row[3] == "admit"]
    assert admitted and set(admitted) == {"late"}
    assert pause["wanted_seconds"] > 0
    assert pause["hindsight"]["preserve"] > 0


def test_a_long_run_keeps_the_outbox_bounded() -> None:
    """Records leave with every step that has output; what is left behind never piles up."""
    rng = random.Random(0)
    world = make_world(blocks=60, max_model_len=512)
    world.scheduler.parts.manager.handling = Whims(rng)
    ledger, most, open_steps = world.scheduler.parts.recorder, 0, 0
    for index in range(1000):
        if rng.random() < 0.1:
            random_session(world, rng, index)
        world.step()
        most = max(most, len(world.scheduler.connector.outbox))
        open_steps = max(open_steps, len(ledger._steps["at"]))
        for session in world.sessions.values():
            if session.paused and not session.finished and rng.random() < 0.1:
                world.answer(session)
    assert most <= 16
    assert open_steps <= 64
    world.flush()
    assert len(world.column("at")) == len(world.scheduled)


def test_nobody_reads_records() -> None:
    world = make_world(records=False)
    a = paused(world)
    world.answer(a)
    world.run()
    assert not world.records
    assert not world.scheduler.connector.outbox
    assert world.scheduler.parts.step_costs.samples
    assert type(world.scheduler.parts.recorder) is Recorder


class Dropping:
    """Discards everything at once, and remembers what it was shown."""

    name = "dropping"
    write_behind = False
    every_step = True

    def __init__(self) -> None:
        self.shown: list[Prices] = []

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        held = [one for one in paused if one.resident]
        self.shown += [prices(one, step) for one in held]
        return [Decision(one.key, "discard") for one in held]

    def victims(self, *_: object) -> list[tuple[str, int]]:
        return []


@IN_EVERY_MODE
def test_a_release_names_its_price_and_those_not_taken(asynchronous: bool, depth: int) -> None:
    world = make_world(asynchronous, depth)
    handling = world.scheduler.parts.manager.handling = Dropping()
    session = paused(world)
    world.step()
    world.answer(session)
    world.flush()
    (record,) = [parse(entry) for entry in world.of("pause")]
    assert isinstance(record, PauseRecord)
    (row,), (seen,) = record.decisions, handling.shown
    assert (row.act, row.why, row.discard) == ("discard", "decided", seen.discard)
    assert row.preserve == seen.preserve and row.preserve > 0
    assert row.swap == (None if seen.swap == inf else seen.swap)


def test_without_records_no_release_is_priced() -> None:
    world = World(make_scheduler(blocks=40, max_model_len=320, host_blocks=100, records=False))
    world.scheduler.parts.manager.handling = Dropping()
    paused(world)
    world.step()
    (kv,) = world.scheduler.parts.manager.paused_kvs.values()
    assert [release.prices for release in kv.releases] == [None]


def owners(world: Counting) -> list[float]:
    """Return the blocks by owner that the records told last: running, paused, free."""
    names = ("running_blocks", "paused_blocks", "free_blocks")
    told = [record for record in world.records if record["kind"] in ("steps", "rest")][-1]
    if told["kind"] == "rest":
        return [told[name] for name in names]
    return [told[name][-1] for name in names]


@IN_EVERY_MODE
@pytest.mark.parametrize("aborts", [False, True])
def test_blocks_by_owner_are_told_when_the_engine_comes_to_rest(
    asynchronous: bool, depth: int, aborts: bool
) -> None:
    """A step tells what was held when it began, and none begins after the last request."""
    world = make_world(asynchronous, depth)
    session = world.session("a", range(100), "y" * 200)
    for _ in range(20):
        world.step()
    if aborts:
        world.abort(session)
    world.flush()
    assert world.column("running_blocks")[-1] > 0
    assert owners(world) == [0, 0, 40]
    assert not world.scheduler.has_requests(), "it keeps an engine at rest awake"


def test_blocks_that_only_a_paused_request_holds_are_told_as_its_own() -> None:
    world = make_world()
    paused(world)
    while world.scheduler.has_requests() and world.scheduler.connector.outbox:
        world.step()
    running, held, free = owners(world)
    assert (running, held) == (0, world.parts.manager.paused_kvs["a"].resident) and held > 0
    assert running + held + free == 40
