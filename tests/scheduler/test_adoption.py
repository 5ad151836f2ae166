"""Models with more than full blocks: a follow-up takes over all that its request left behind."""

import random
from typing import Any

import pytest
from vllm.v1.core.sched.interface import PauseState

from caesura.intercept.calls.formats import resolve
from caesura.scheduler.vllm.engine import follow_ups
from caesura.scheduler.vllm.engine.port.v032 import EngineState032
from tests.scheduler.retaining import (
    TOKENS,
    call,
    churn,
    ends_well,
    first_chunk,
    follow_up,
    retained,
    until_finished,
)
from tests.scheduler.steering import HERMES

from .invariants import check_all, check_rest, said_as_planned
from .remains import remains
from .steering import stateful, step_until
from .world import World, make_scheduler

CACHED = pytest.mark.parametrize("cached", [False, True], ids=["none", "align"])
IN_PIPELINES = pytest.mark.parametrize("depth", [0, 1, 3])


def make_world(depth: int = 0, cached: bool = False, **options: Any) -> World:
    given = {"blocks": 50, "max_model_len": 320, "stages": depth + 1}
    return stateful(depth, cached, formats=resolve(("hermes",), ()), **{**given, **options})


@CACHED
@IN_PIPELINES
@pytest.mark.parametrize(("retention", "found"), [(120.0, TOKENS - 1), (0.0, None)])
def test_a_follow_up_computes_only_its_new_tokens(
    depth: int, cached: bool, retention: float, found: int | None
) -> None:
    world = make_world(depth, cached, retention=retention)
    asked = call(world)
    assert len(retained(world)) == (retention > 0)
    world.now -= 60.0
    churn(world)
    follower = follow_up(world, asked)
    computed = first_chunk(world, follower)
    assert computed == found if found is not None else computed < TOKENS - 16
    assert not retained(world)
    ends_well(world)
    assert world.computed_again["b"] == 0


@CACHED
@pytest.mark.parametrize(("depth", "found"), [(0, TOKENS - 1), (1, TOKENS), (3, None)])
def test_where_steps_run_ahead_it_goes_on_behind_what_they_apply(
    depth: int, cached: bool, found: int | None
) -> None:
    """One step in flight applies the last token. Several go beyond it, and nothing is kept."""
    world = make_world(depth, cached, stages=1, asynchronous=True)
    asked = call(world)
    assert len(retained(world)) == (found is not None)
    churn(world)
    computed = first_chunk(world, follow_up(world, asked))
    assert computed == found or found is None
    ends_well(world)


@CACHED
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_session_whose_client_left_it_at_its_call_is_taken_over(
    cached: bool, asynchronous: bool
) -> None:
    world = make_world(int(asynchronous), cached, stages=1, asynchronous=asynchronous)
    session = world.session("a", range(100), HERMES, "", formats=("hermes",))
    step_until(world, lambda: session.paused)
    world.goodbye(session)
    session.paused, session.finished = False, True
    world.step()
    assert list(retained(world)) == ["a"]
    churn(world)
    context = [*session.prompt, *session.delivered]
    follower = world.plain("b", [*context, *b"r" * 20], "well")
    assert first_chunk(world, follower) == len(context) - 1 + asynchronous
    assert not retained(world)


@CACHED
@pytest.mark.parametrize("less", [2, 40])
def test_a_follow_up_that_differs_finds_what_the_prefix_cache_has(cached: bool, less: int) -> None:
    world = make_world(cached=cached)
    asked = call(world)
    follower = follow_up(world, asked, less=less)
    found = first_chunk(world, follower)
    assert found % 16 == 0
    assert found < TOKENS - less
    assert not retained(world), "the session goes on, so nobody else will come"
    ends_well(world)


@CACHED
def test_the_same_prompt_again_takes_nothing(cached: bool) -> None:
    world = make_world(cached=cached)
    call(world)
    world.plain("again", range(100), "ok")
    until_finished(world, world.sessions["again"])
    assert len(retained(world)) == 1
    ends_well(world)


@pytest.mark.parametrize(
    ("field", "value"), [("cache_salt", "other"), ("skip_reading_prefix_cache", True)]
)
def test_another_owner_takes_nothing(field: str, value: Any) -> None:
    world = make_world()
    asked = call(world)
    add = world.scheduler.add_request

    def salted(request: Any) -> None:
        setattr(request, field, value)
        add(request)

    world.scheduler.add_request = salted
    assert first_chunk(world, follow_up(world, asked)) == 0
    ends_well(world)


@CACHED
@IN_PIPELINES
def test_running_requests_take_all_of_it(depth: int, cached: bool) -> None:
    world = make_world(depth, cached, blocks=26)
    asked = call(world)
    hungry = world.plain("hungry", range(9000, 9100), "y" * 200)
    until_finished(world, hungry)
    assert world.computed_again.get("hungry") == 0, "it was preempted"
    assert not retained(world)
    follow_up(world, asked)
    ends_well(world)


@CACHED
@IN_PIPELINES
def test_running_requests_take_it_from_a_follow_up_that_waits(depth: int, cached: bool) -> None:
    """It then begins anew, as any request."""
    world = make_world(depth, cached, blocks=30, max_num_seqs=1)
    asked = call(world)
    hungry = world.plain("hungry", range(9000, 9100), "y" * 200)
    step_until(world, lambda: "hungry" in world.did)
    follower = follow_up(world, asked)
    held = world.parts.paused_kvs.held_by("b")
    assert held is not None and held.adopter is world.scheduler.requests["b"]
    while not hungry.finished:
        world.step()
        check_all(world)
    assert world.computed_again.get("hungry") == 0, "it was preempted"
    assert not retained(world)
    until_finished(world, follower)
    ends_well(world)


@CACHED
@pytest.mark.parametrize("when", ["kept", "adopted", "running"])
def test_an_abort_frees_everything(cached: bool, when: str) -> None:
    world = make_world(cached=cached, max_num_seqs=1)
    asked = call(world)
    other = world.plain("other", range(9000, 9050), "y" * 100)
    step_until(world, lambda: "other" in world.did)
    follower = follow_up(world, asked)
    if when == "running":
        until_finished(world, other)
        step_until(world, lambda: "b" in world.did)
    if when == "kept":
        world.scheduler.reset_prefix_cache(reset_running_requests=True)
    world.abort(follower)
    check_all(world)
    until_finished(world, other)
    ends_well(world)
    assert not remains(world.scheduler, world.sessions.keys())


def test_while_the_engine_is_paused_a_follow_up_waits_as_any_new_request() -> None:
    world = make_world()
    asked = call(world)
    world.scheduler.set_pause_state(PauseState.PAUSED_NEW)
    follow_up(world, asked)
    for _ in range(3):
        assert world.step() == 0
    world.scheduler.set_pause_state(PauseState.UNPAUSED)
    ends_well(world)


def test_time_frees_it() -> None:
    world = make_world(retention=100.0)
    call(world)
    world.now += 90.0
    world.step()
    assert retained(world)
    world.now += 10.0
    world.step()
    assert not retained(world)
    assert world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 50
    ends_well(world)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prefix_caching": False}, "prefix caching is off"),
        ({"layout": "state+full", "drafts": 2}, "recurrent state"),
        ({"layout": "state+full", "asynchronous": True}, None),
        ({"layout": "state+full", "prefix_caching": False}, None),
        ({"layout": "window"}, None),
        ({}, None),
    ],
)
def test_the_log_says_why_nothing_is_kept(
    options: dict[str, Any], reason: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    make_scheduler(**options)
    said = [one.getMessage() for one in caplog.records if "follow-ups" in one.getMessage()]
    assert len(said) == (reason is not None)
    assert reason is None or reason in said[0]


def test_under_another_connector_nothing_changes_hands(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It follows the blocks of each request, from its arrival to its end, by the request's id."""
    monkeypatch.setattr(EngineState032, "connector", object())
    assert not make_scheduler(layout="window+full").parts.follow_ups.enabled
    assert "another KV connector" in caplog.text
    assert make_scheduler().parts.follow_ups.enabled, "the prefix cache finds single blocks"


def test_kv_that_is_too_short_to_be_recognised_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(follow_ups, "MARK_TOKENS", TOKENS)
    world = make_world()
    call(world)
    assert not retained(world)
    ends_well(world)


@pytest.mark.parametrize("seed", range(8))
@CACHED
@pytest.mark.parametrize("depth", [0, 1])
def test_random_agents(depth: int, cached: bool, seed: int) -> None:
    """Ten agents go on where they stopped, or elsewhere, under pressure and with aborts."""
    rng = random.Random(seed)
    blocks, handling = rng.choice([40, 60, 300]), rng.choice(["caesura", "preserve", "discard"])
    world = make_world(
        depth,
        cached,
        blocks=blocks,
        max_num_seqs=rng.choice([1, 2, 5]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        handling=handling,
    )
    turns = {
        f"agent-{n}": list(range(n * 1000, n * 1000 + rng.randrange(20, 90))) for n in range(10)
    }
    running: dict[str, Any] = {}
    begun = adopted = 0
    for _ in range(400):
        for name in [name for name, one in running.items() if one.finished]:
            session = running.pop(name)
            kept = rng.choice([0, 0, 0, 3])
            context = [*session.prompt, *session.parts[0]]
            turns[name] = [*context[: len(context) - kept], *b"r" * rng.randrange(1, 20)]
        if begun < 40 and len(running) < 4:
            name = rng.choice([name for name in turns if name not in running])
            if len(turns[name]) < 240:
                begun += 1
                running[name] = world.plain(f"{name}.{begun}", turns[name], HERMES)
                adopted += world.parts.paused_kvs.held_by(f"{name}.{begun}") is not None
        if running and rng.random() < 0.02:
            session = running.pop(rng.choice(list(running)))
            world.abort(session)
        world.step()
        check_all(world)
    assert adopted or blocks < 300 or handling != "preserve", "no follow-up took anything over"
    world.run(1500)
    world.now += 1000.0
    world.step()
    world.drain()
    said_as_planned(world)
    check_rest(world)
    assert not remains(world.scheduler, world.sessions.keys())
