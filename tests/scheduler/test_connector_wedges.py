"""Situations in which copies, admissions and pauses could block each other, or be corrupted.

Around vLLM's real scheduler with our connector. See `test_wedges` for those that others have met.
"""

from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from .invariants import check_all
from .steering import (
    CALL,
    WITH_PIPELINES,
    choose,
    evict,
    finishes,
    flow,
    loading,
    stall,
    step_until,
    swap_out,
    until_paused,
)
from .world import Session, World, make_scheduler


def make_world(asynchronous: bool, depth: int, **options: Any) -> World:
    given = {"blocks": 20, "max_model_len": 320, "host_blocks": 100, "in_step": False}
    return World(make_scheduler(asynchronous=asynchronous, **{**given, **options}), depth)


def preserved_and_swapped(world: World) -> tuple[Session, Session]:
    """`a` holds 8 of 20 blocks and needs 14 to go on; `b` is on the host and needs 9."""
    a = world.session("a", range(100), CALL, "x" * 100, " done")
    b = world.session("b", range(1000, 1120), CALL, " 3]", " done")
    until_paused(world, a, b)
    swap_out(world, b)
    return a, b


# -- loads and those that stay --------------------------------------------------------------------


@WITH_PIPELINES
@pytest.mark.parametrize("arrives_first", [True, False])
def test_load_and_a_preserved_session_need_each_others_blocks(
    asynchronous: bool, depth: int, arrives_first: bool
) -> None:
    world = make_world(asynchronous, depth)
    a, b = preserved_and_swapped(world)
    stall(world)
    world.answer(b)
    step_until(world, lambda: loading(world, b))
    if arrives_first:
        flow(world)
        step_until(world, lambda: not loading(world, b))
    world.answer(a)
    for _ in range(10):
        world.step()
        check_all(world)
    flow(world)
    finishes(world)
    assert b.reports[-1]["resume"]["handling"] == "swap"


@WITH_PIPELINES
def test_preserved_session_returns_before_the_swapped_one(asynchronous: bool, depth: int) -> None:
    world = make_world(asynchronous, depth)
    a, b = preserved_and_swapped(world)
    stall(world)
    world.answer(a)
    world.answer(b)
    for _ in range(10):
        world.step()
        check_all(world)
    flow(world, 1)
    finishes(world)


@WITH_PIPELINES
@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_six_sessions_come_back_at_once(
    asynchronous: bool, depth: int, prefix_caching: bool, in_step: bool
) -> None:
    """Each holds 9 of 30 blocks while it runs; all of them are on the host, and loads are late."""
    world = make_world(
        asynchronous, depth, blocks=30, prefix_caching=prefix_caching, in_step=in_step
    )
    sessions = []
    for index in range(6):
        start = 1000 * index
        sessions.append(world.session(f"s{index}", range(start, start + 120), CALL, "x" * 60, "."))
        until_paused(world, sessions[-1])
        swap_out(world, *sessions)
    for session in sessions:
        world.answer(session)
    stall(world)
    for _ in range(20):
        world.step()
        check_all(world)
    flow(world, 2)
    finishes(world)
    handled = [session.reports[-1]["resume"]["handling"] for session in sessions]
    assert handled == ["swap"] * 6
    assert not any(world.computed_again[s.request_id] > 16 for s in sessions)


# -- saves and those that want their blocks -------------------------------------------------------


@WITH_PIPELINES
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_blocks_that_are_being_saved_are_not_written(
    asynchronous: bool, depth: int, prefix_caching: bool
) -> None:
    """A running request needs them all, and more, long before the copies are made."""
    world = make_world(asynchronous, depth, prefix_caching=prefix_caching)
    a = world.session("a", range(120), CALL, "x" * 30, " done")
    until_paused(world, a)
    stall(world)
    choose(world, a="swap")
    planner = world.scheduler.parts.manager.planner
    step_until(world, lambda: planner.busy)
    saved = {block.block_id for block in planner.blocks_in_flight()}
    before = {slot: hash_ for slot, hash_ in world._memory.slots.items() if slot[0] in saved}
    assert len(saved) == 8
    hungry = world.plain("hungry", range(5000, 5160), "y" * 150)
    for _ in range(60):
        world.step()
        check_all(world)
        assert before == {slot: world._memory.slots[slot] for slot in before}
    assert not hungry.finished
    flow(world)
    step_until(world, lambda: hungry.finished)
    evict(world)
    finishes(world)
    assert a.reports[-1]["resume"]["handling"] == "swap"
    assert a.reports[-1]["resume"]["loaded_tokens"] == 128


@WITH_PIPELINES
def test_nothing_is_released_before_all_is_copied_if_nothing_could_be_found(
    asynchronous: bool, depth: int
) -> None:
    """Without prefix caching all blocks go at once, so that part of the copies would be no use."""
    world = make_world(asynchronous, depth, prefix_caching=False, handling="swap")
    world.scheduler.parts.manager.views.link_blocks = lambda: 2
    a = world.session("a", range(120), CALL, "x" * 30, " done")
    until_paused(world, a)
    step_until(world, lambda: not world.scheduler.parts.manager.paused_kvs["a"].resident)
    world.answer(a)
    finishes(world)
    assert world.link.saved == 8
    assert a.reports[-1]["resume"]["loaded_tokens"] == 128


@WITH_PIPELINES
@pytest.mark.parametrize("in_step", [False, True])
def test_paused_again_while_the_first_pause_is_still_being_saved(
    asynchronous: bool, depth: int, in_step: bool
) -> None:
    world = make_world(asynchronous, depth, in_step=in_step)
    a = world.session("a", range(100), CALL, "x" * 20, CALL, "x" * 20, " done")
    until_paused(world, a)
    stall(world)
    choose(world, a="swap")
    planner = world.scheduler.parts.manager.planner
    step_until(world, lambda: planner.busy)
    choose(world)
    world.answer(a)
    until_paused(world, a)
    assert planner.busy
    assert a.reports[-1]["resume"]["handling"] == "preserve"
    choose(world, a="swap")
    for _ in range(4):
        world.step()
        check_all(world)
    flow(world, 0)
    swap_out(world, a)
    assert not planner.busy
    world.answer(a)
    finishes(world)
    resume = a.reports[-1]["resume"]
    assert resume["handling"] == "swap"
    assert resume["loaded_tokens"] == resume["context_tokens"] // 16 * 16


# -- the same KV twice ----------------------------------------------------------------------------


@WITH_PIPELINES
def test_what_a_session_holds_lies_in_the_prefix_cache_twice(
    asynchronous: bool, depth: int
) -> None:
    """vLLM finds the other copy, which is free: then what it holds stands in its own way.

    Two sessions have said the same, each into its own blocks, and the first has gone. The other
    holds 8 of 20 blocks and needs 16; of those that it finds only the prompt's 2 are its own.
    """
    world = make_world(asynchronous, depth)
    said = "w" * 98 + CALL
    first = world.session("first", range(32), said, "x" * 100, " done")
    a = world.session("a", range(32), said, "x" * 100, " done")
    until_paused(world, first, a)
    world.abort(first)
    manager = world.scheduler.parts.manager
    manager.release(manager.paused_kvs["a"], 2, world.now, "decided")
    check_all(world)
    assert len(manager.paused_kvs["a"].detached) == 8
    world.answer(a)
    finishes(world)


# -- abort ----------------------------------------------------------------------------------------


@WITH_PIPELINES
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("pieces", [False, True])
def test_abort_while_loading(
    asynchronous: bool, depth: int, prefix_caching: bool, pieces: bool
) -> None:
    """Its blocks come back once, when the copies under way are over, and not before."""
    world = make_world(asynchronous, depth, prefix_caching=prefix_caching)
    a = world.session("a", range(120), CALL, "x" * 30, " done")
    b = world.session("b", range(1000, 1060), "w" * 40 + CALL, "x" * 30, " done")
    until_paused(world, a)
    swap_out(world, a)
    if pieces:
        world.scheduler.parts.manager.views.link_blocks = lambda: 2
    stall(world)
    world.answer(a)
    step_until(world, lambda: loading(world, a))
    world.step()
    target = set(world.scheduler.parts.manager.planner.loads._loading["a"].blocks)
    world.abort(a)
    assert a.request_id in world.scheduler.requests
    other = world.plain("other", range(5000, 5100))
    for _ in range(8):
        world.step()
        check_all(world)
        free = world.scheduler.kv_cache_manager.block_pool.free_block_queue.get_all_free_blocks()
        assert target.isdisjoint(block.block_id for block in free)
    flow(world)
    step_until(world, lambda: a.request_id not in world.scheduler.requests)
    finishes(world)
    assert other.finished and b.finished


@WITH_PIPELINES
def test_abort_in_the_step_in_which_the_load_arrives(asynchronous: bool, depth: int) -> None:
    world = make_world(asynchronous, depth)
    a = world.session("a", range(120), CALL, "x" * 30, " done")
    until_paused(world, a)
    swap_out(world, a)
    stall(world)
    world.answer(a)
    step_until(world, lambda: loading(world, a))
    flow(world)
    step_until(world, lambda: "a" in world.scheduler.finished_recving_kv_req_ids)
    assert world.scheduler.requests["a"].status == RequestStatus.WAITING_FOR_REMOTE_KVS
    world.abort(a)
    finishes(world)
