"""A request that ended with a call, whose client sends a new one with the result: KV is kept.

Nobody tells the engine anything: it sees the call in the tokens, and the follow-up by its prefix.
"""

from typing import Any

import pytest

from caesura.intercept.calls.formats import resolve
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
from tests.scheduler.steering import HERMES, IN_EVERY_MODE, choose, evict, step_until

from .invariants import check_all
from .world import END, Session, World, make_scheduler

KEPT = (TOKENS - 1) // 16


def make_world(asynchronous: bool = False, depth: int = 0, **options: Any) -> World:
    given = {"blocks": 40, "max_model_len": 320}
    formats = resolve(("hermes",), ())
    scheduler = make_scheduler(asynchronous=asynchronous, formats=formats, **{**given, **options})
    return World(scheduler, depth)


@IN_EVERY_MODE
@pytest.mark.parametrize(("retention", "found"), [(120.0, KEPT), (0.0, 0)])
def test_follow_up_finds_all_full_blocks(
    asynchronous: bool, depth: int, retention: float, found: int
) -> None:
    """Though others have used every free block meanwhile; the control keeps nothing."""
    world = make_world(asynchronous, depth, retention=retention)
    asked = call(world)
    assert len(retained(world)) == (retention > 0)
    if retention:
        (kept,) = retained(world).values()
        assert (kept.tool, len(kept.detached)) == ("calc", KEPT)
        world.now -= 60.0  # what churning takes must not be the time that it is kept
    churn(world)
    assert first_chunk(world, follow_up(world, asked)) == 16 * found
    assert not retained(world)
    ends_well(world)


def test_without_prefix_caching_nothing_is_kept() -> None:
    world = make_world(prefix_caching=False)
    call(world)
    assert not retained(world)
    ends_well(world)


@IN_EVERY_MODE
def test_running_requests_take_what_they_need(asynchronous: bool, depth: int) -> None:
    world = make_world(asynchronous, depth, blocks=20)
    asked = call(world)
    hungry = world.plain("hungry", range(9000, 9100), "y" * 200)
    until_finished(world, hungry)
    assert world.computed_again.get("hungry") == 0, "it was preempted"
    left = sum(len(kv.detached) for kv in retained(world).values())
    assert left < KEPT
    follow_up(world, asked)
    ends_well(world)


@IN_EVERY_MODE
def test_a_waiting_request_takes_it_if_nobody_runs(asynchronous: bool, depth: int) -> None:
    world = make_world(asynchronous, depth, blocks=20, handling="caesura")
    call(world)
    until_finished(world, world.plain("large", range(9000, 9300)))
    left = sum(len(kv.detached) for kv in retained(world).values())
    assert left <= 1
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
    check_all(world)
    assert world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 40
    ends_well(world)


@IN_EVERY_MODE
@pytest.mark.parametrize(
    ("less", "found"), [(TOKENS - 16 * KEPT + 3, KEPT - 1), (TOKENS - 103, 6), (TOKENS - 101, 6)]
)
def test_follow_up_that_diverges_in_the_last_turn(
    asynchronous: bool, depth: int, less: int, found: int
) -> None:
    """A client that renders the turn anew may write it otherwise: the prompt tells as well."""
    world = make_world(asynchronous, depth)
    asked = call(world)
    world.now -= 60.0
    churn(world)
    assert first_chunk(world, follow_up(world, asked, less=less)) == 16 * found
    assert not retained(world)
    ends_well(world)


@IN_EVERY_MODE
def test_two_requests_with_the_same_prompt(asynchronous: bool, depth: int) -> None:
    """The second is no follow-up of the first. Each has its own, by what they said."""
    world = make_world(asynchronous, depth)
    other = HERMES.replace("calc", "time")
    first, second = call(world), call(world, "a2", text=other)
    assert set(retained(world)) == {"a", "a2"}
    world.now -= 60.0
    churn(world)
    assert first_chunk(world, follow_up(world, first, "b")) == 16 * KEPT
    assert set(retained(world)) == {"a2"}
    churn(world)
    assert first_chunk(world, follow_up(world, second, "b2")) == 16 * KEPT
    assert not retained(world)
    ends_well(world)


@IN_EVERY_MODE
def test_follow_up_is_aborted_while_it_waits(asynchronous: bool, depth: int) -> None:
    """Its client has gone: nothing is kept for it any longer."""
    world = make_world(asynchronous, depth, max_num_seqs=1)
    asked = call(world)
    running = world.plain("running", range(5000, 5020), "y" * 60)
    world.step()
    waits = follow_up(world, asked)
    world.step()
    assert retained(world)["a"].follow_up == "b"
    world.abort(waits)
    world.step()
    check_all(world)
    assert not retained(world)
    until_finished(world, running)
    ends_well(world)


def test_kept_beyond_its_time_while_the_follow_up_waits() -> None:
    world = make_world(max_num_seqs=1, retention=100.0)
    asked = call(world)
    until = world.plain("running", range(5000, 5020), "y" * 60)
    world.step()
    waits = follow_up(world, asked)
    world.now += 1000.0
    world.step()
    assert retained(world)
    world.abort(until)
    assert first_chunk(world, waits) == 16 * KEPT
    ends_well(world)


@IN_EVERY_MODE
@pytest.mark.parametrize("in_step", [True, False])
def test_host_copies_serve_the_follow_up(asynchronous: bool, depth: int, in_step: bool) -> None:
    world = make_world(asynchronous, depth, host_blocks=100, in_step=in_step)
    asked = call(world)
    choose(world, a="swap")
    step_until(world, lambda: not retained(world))
    step_until(world, lambda: not world.scheduler.parts.manager.planner.busy)
    evict(world)
    back = follow_up(world, asked)
    until_finished(world, back)
    assert world.link.saved == world.link.loaded == KEPT
    assert world.computed_again["b"] == 0
    ends_well(world)


@pytest.mark.parametrize("text", ["no call", "<tool", HERMES[1:]])
def test_a_turn_without_a_call_is_not_kept(text: str) -> None:
    world = make_world()
    call(world, text=text)
    assert not retained(world)
    ends_well(world)


def test_a_turn_that_ran_into_its_limit_is_not_kept() -> None:
    world = make_world()
    cut = world.plain("a", range(100), HERMES, max_tokens=len(HERMES))
    until_finished(world, cut)
    assert cut.delivered == list(HERMES.encode())
    assert END not in cut.delivered
    assert not retained(world)
    cut.parts = [cut.delivered]
    ends_well(world)


def test_an_aborted_turn_is_not_kept() -> None:
    world = make_world()
    gone = world.plain("a", range(100), HERMES + "y" * 50)
    step_until(world, lambda: len(gone.delivered) > len(HERMES) + 5)
    world.abort(gone)
    world.step()
    assert not retained(world)
    ends_well(world)


def paused_at_call(world: World) -> Session:
    """Have a session pause whose last call is the client's to answer."""
    parts = (HERMES + "\x00", "r" * 20, "well")
    session = world.session("a", range(100), *parts, formats=("hermes",))
    session.parts[0][-1] = END
    step_until(world, lambda: session.paused)
    return session


def leave(world: World, session: Session) -> None:
    """Close the input of a paused session: its client answers the call in a request of its own."""
    world.goodbye(session)
    session.finished = True
    del session.parts[1:]
    world.drain()
    world.step()
    check_all(world)


@IN_EVERY_MODE
@pytest.mark.parametrize("given_up", [0, 2])
def test_a_paused_request_whose_client_leaves_is_kept_for_its_follow_up(
    asynchronous: bool, depth: int, given_up: int
) -> None:
    """It is as if it had ended at the call by itself: the blocks stay, and so does the session."""
    world = make_world(asynchronous, depth)
    asked = paused_at_call(world)
    parts = world.scheduler.parts
    session = parts.sessions["a"]
    if given_up:
        world.drain()
        world.step()
        world.drain()
        assert parts.manager.release(parts.manager.paused_kvs["a"], given_up, world.now, "test")
    leave(world, asked)
    (kept,) = retained(world).values()
    found = len(kept.detached)
    assert kept.tool == "calc" and (found < KEPT if given_up else found == KEPT)
    world.now -= 60.0
    churn(world)
    answer = follow_up(world, asked)
    assert parts.sessions["b"] is session and session.calls == 1
    assert first_chunk(world, answer) == 16 * found
    assert not retained(world)
    ends_well(world)


def test_a_paused_request_that_is_aborted_is_not_kept() -> None:
    world = make_world()
    asked = paused_at_call(world)
    world.abort(asked)
    world.step()
    assert not world.scheduler.parts.manager.paused_kvs
    ends_well(world)


def test_a_paused_request_whose_client_leaves_without_kv_ends() -> None:
    world = make_world()
    asked = paused_at_call(world)
    manager = world.scheduler.parts.manager
    manager.drop(manager.paused_kvs["a"], world.now, "test")
    leave(world, asked)
    assert not manager.paused_kvs and "a" not in world.scheduler.requests
    follow_up(world, asked)
    ends_well(world)


def named(world: World, name: str, session: str, start: int, **about: Any) -> Session:
    """A request of a named session that ends with a call."""
    asked = world.plain(name, range(start, start + 100), HERMES, caesura_session=session, **about)
    until_finished(world, asked)
    return asked


def end(world: World, session: str, tenant: str = "") -> Any:
    given = {"command": "end_session", "session": session, "tenant": tenant}
    return world.scheduler.parts.commands.run(given)["ended"]


@IN_EVERY_MODE
def test_the_end_of_a_session_frees_what_only_it_and_its_sub_agents_would_use(
    asynchronous: bool, depth: int
) -> None:
    world = make_world(asynchronous, depth, blocks=80, retention=900.0)
    pool = world.scheduler.kv_cache_manager.block_pool
    kept = named(world, "kept", "other", 0)
    named(world, "main", "main", 0, caesura_tenant="")  # it begins as the other does
    named(world, "child", "child", 1000, caesura_parent="main")
    named(world, "grandchild", "grandchild", 2000, caesura_parent="child")
    named(world, "theirs", "main", 3000, caesura_tenant="theirs")
    assert end(world, "unknown") == end(world, "main", "nobody") == 0
    assert pool.get_num_free_blocks() == 80 - 5 * KEPT + 6, "main and the other share a prompt"
    assert end(world, "main") == 3
    world.step()
    world.drain()
    assert set(retained(world)) == {"kept", "theirs"}
    assert pool.get_num_free_blocks() == 80 - 2 * KEPT
    assert first_chunk(world, follow_up(world, kept)) == 16 * KEPT
    assert end(world, "main", "theirs") == 1
    ends_well(world)


def test_the_end_of_a_session_frees_its_copies_on_the_host() -> None:
    world = make_world(host_blocks=KEPT)
    store = world.scheduler.parts.manager.planner.store
    named(world, "a", "main", 0)
    choose(world, a="swap")
    step_until(world, lambda: not world.scheduler.parts.manager.planner.busy and store.used == KEPT)
    end(world, "main")
    assert store.available == KEPT and not retained(world)
    ends_well(world)


@IN_EVERY_MODE
def test_a_request_under_way_is_not_kept_after_the_end_of_its_session(
    asynchronous: bool, depth: int
) -> None:
    world = make_world(asynchronous, depth)
    asked = world.plain("a", range(100), HERMES, caesura_session="main")
    world.step()
    assert end(world, "main") == 0
    until_finished(world, asked)
    assert not retained(world)
    named(world, "b", "main", 0)
    assert retained(world), "the name may begin a new session"
    ends_well(world)


def test_a_paused_request_of_an_ended_session_is_not_kept() -> None:
    world = make_world()
    asked = paused_at_call(world)
    world.scheduler.parts.sessions["a"].final = True
    leave(world, asked)
    assert not world.scheduler.parts.manager.paused_kvs and "a" not in world.scheduler.requests
    ends_well(world)
