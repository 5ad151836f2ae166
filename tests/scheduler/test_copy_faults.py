"""Copies that fail, a host that is full, and resets while copies are made.

Once a fault is over, every request that is left finishes with the tokens that it planned, and
every block is free.
"""

import logging

import pytest

from caesura.scheduler.vllm.engine.swap.host import HostStore
from caesura.scheduler.vllm.engine.swap.messages import Load, Save, SwapOrders
from caesura.scheduler.vllm.engine.swap.planner import Loads

from .invariants import check_all
from .steering import (
    CALL,
    WITH_PIPELINES,
    choose,
    evict,
    faulty_world,
    finishes,
    flow,
    paused_session,
    stall,
    swap_out,
    swapped,
    until_paused,
)


@WITH_PIPELINES
@pytest.mark.parametrize("host_blocks", [1, 3, 9])
def test_host_is_full(asynchronous: bool, depth: int, host_blocks: int) -> None:
    world = faulty_world(asynchronous, depth, host_blocks=host_blocks, handling="swap")
    sessions = [paused_session(world, name, 1000 * n) for n, name in enumerate("abc")]
    for _ in range(10):
        world.step()
        check_all(world)
    assert world.scheduler.parts.manager.planner.store.used == host_blocks
    evict(world)
    for session in sessions:
        world.answer(session)
    finishes(world)


def is_save(order: Load | Save) -> bool:
    return isinstance(order, Save)


def is_in_step(order: Load | Save) -> bool:
    return isinstance(order, Load) and order.in_step


def is_over_steps(order: Load | Save) -> bool:
    return isinstance(order, Load) and not order.in_step


@WITH_PIPELINES
@pytest.mark.parametrize("in_step", [True, False])
def test_loads_fail(asynchronous: bool, depth: int, in_step: bool) -> None:
    """What cannot be loaded is recomputed, and its copy is not trusted again."""
    world = faulty_world(asynchronous, depth, in_step=in_step)
    session = swapped(world)
    world.link.refuses = lambda order: isinstance(order, Load)
    world.answer(session)
    for _ in range(4):
        world.step()
        check_all(world)
    assert world.link.failures == 1
    world.link.refuses = lambda order: False
    finishes(world)
    assert world.link.loaded == 0


@WITH_PIPELINES
def test_one_piece_of_a_load_fails(asynchronous: bool, depth: int) -> None:
    world = faulty_world(asynchronous, depth, in_step=False)
    session = swapped(world)
    world.scheduler.parts.manager.views.link_blocks = lambda: 2
    pieces: list[Load] = []

    def second(order: Load | Save) -> bool:
        pieces.extend([order] if isinstance(order, Load) else [])
        return len(pieces) == 2

    world.link.refuses = second
    world.answer(session)
    finishes(world)
    assert len(pieces) == 4
    assert world.computed_again["a"] >= 120


@WITH_PIPELINES
def test_saves_fail(asynchronous: bool, depth: int, caplog: pytest.LogCaptureFixture) -> None:
    """Three in a row switch swapping off, which the log says once."""
    world = faulty_world(asynchronous, depth)
    world.scheduler.parts.manager.views.link_blocks = lambda: 2
    session = paused_session(world)
    choose(world, a="swap")
    world.link.refuses = is_save
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            world.step()
            check_all(world)
    planner = world.scheduler.parts.manager.planner
    assert not planner.works and not planner.busy
    assert world.link.failures >= 3
    assert caplog.text.count("swapping is off") == 1
    world.link.refuses = lambda order: False
    world.answer(session)
    finishes(world)
    assert world.link.saved == 0


def test_a_save_that_succeeds_forgives_those_before() -> None:
    world = faulty_world()
    world.scheduler.parts.manager.views.link_blocks = lambda: 1
    paused_session(world)
    choose(world, a="swap")
    outcomes = iter([True, True, False] * 10)
    world.link.refuses = lambda order: is_save(order) and next(outcomes)
    for _ in range(30):
        world.step()
        check_all(world)
    assert world.scheduler.parts.manager.planner.works
    assert world.link.saved == 8
    finishes(world)


@WITH_PIPELINES
@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("connector", [False, True])
def test_reset_while_copies_are_made(
    asynchronous: bool, depth: int, running: bool, connector: bool
) -> None:
    """Nothing stands in its way, and copies that it calls off are no failures of the link."""
    world = faulty_world(asynchronous, depth)
    world.scheduler.parts.manager.views.link_blocks = lambda: 2
    session = paused_session(world)
    stall(world)
    choose(world, a="swap")
    for _ in range(6):
        world.step()
    world.drain()
    planner = world.scheduler.parts.manager.planner
    assert len(planner._saving) == 4
    assert world.scheduler.reset_prefix_cache(running, connector)
    check_all(world)
    other = world.session("b", range(120), "w" * 20 + CALL, "y" * 20, " done")
    flow(world)
    until_paused(world, other)
    assert planner.works
    assert not planner.store.used
    swap_out(world, other)
    world.answer(session)
    finishes(world)
    assert other.reports[-1]["resume"]["loaded_tokens"] == 144


def test_a_load_that_fails_leaves_the_copies_that_others_read() -> None:
    """Two requests load the same prefix piece by piece, and one of them fails."""
    store = HostStore(4)
    keys = ["w", "x", "y", "z"]
    for key in keys:
        store.reserve(key)
        store.confirm(key)
    loads = Loads(store, in_step=False)
    for request, blocks in (("a", [1, 2, 3, 4]), ("b", [5, 6, 7, 8])):
        loads.match(request, keys, 0)
        loads.allocated(request, blocks, 4)
    loads.order(SwapOrders(), 6, computes=True)
    loads.received(["a"], ["a"])
    rest = SwapOrders()
    loads.order(rest, 6, computes=True)
    assert [(load.request_id, load.blocks, load.last) for load in rest.loads] == [
        ("b", [7, 8], True)
    ]
    loads.received([], ["b"])
    assert not store.used, "nobody trusts them, and now nobody reads them"
