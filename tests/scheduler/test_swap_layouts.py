"""Swapping on models with several groups of KV cache: all of a request, or nothing.

The fake runner's layers check every slot and state that they read (`layouts.py`).
"""

import random
from typing import Any

import pytest

from caesura.intercept.calls.formats import resolve
from caesura.scheduler.vllm.engine.swap.messages import Load
from tests.scheduler.retaining import TOKENS, call, ends_well, first_chunk, follow_up, retained

from .clients import all_is_told_and_nothing_left, clients_act, resumes
from .invariants import check_rest, said_as_planned
from .layouts import LAYOUTS, is_recurrent, room
from .link import random_pace
from .steering import CALL, finishes, flow, loading, stall, step_until, swap_out, until_paused
from .whims import Whims
from .world import World, make_scheduler

EVERY = pytest.mark.parametrize("layout", LAYOUTS[2:])
CACHED = pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
AHEAD = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
HANDLINGS = ("preserve", "discard", "swap", "swap", "infercept", "infercept", "caesura")


def make_world(
    layout: str, cached: bool, asynchronous: bool, blocks: int = 100, **options: Any
) -> World:
    given = {"host_blocks": 400, **options}
    scheduler = make_scheduler(
        layout=layout,
        prefix_caching=cached,
        asynchronous=asynchronous,
        blocks=room(layout, blocks, cached, given.get("drafts", 0), int(asynchronous)),
        **given,
    )
    return World(scheduler, int(asynchronous))


@EVERY
@CACHED
@AHEAD
def test_a_swapped_request_computes_only_what_is_new(
    layout: str, cached: bool, asynchronous: bool
) -> None:
    world = make_world(layout, cached, asynchronous)
    session = world.session("a", range(130), CALL, "r" * 30 + "]", "y" * 20 + CALL, " 3]", " done")
    for _ in range(2):
        until_paused(world, session)
        swap_out(world, session)
        world.answer(session)
        world.step()
    world.run()
    said_as_planned(world)
    check_rest(world)
    reports = resumes(world)
    assert [one["handling"] for one in reports] == ["swap", "swap"]
    assert all(one["cached_tokens"] == one["context_tokens"] for one in reports)
    assert all(one["loaded_tokens"] for one in reports)
    # Without recurrent state a step in flight computes the last token of a call for nothing.
    again = 2 if asynchronous and not is_recurrent(layout) else 0
    assert sum(world.computed_again.values()) == again


@EVERY
@CACHED
def test_what_is_copied_is_what_a_request_needs(layout: str, cached: bool) -> None:
    """A window as far as it reaches, one state, and of the rest all blocks, also the last one."""
    world = make_world(layout, cached, False, window=40)
    session = world.session("a", range(130), CALL, " 3]", " done")
    until_paused(world, session)
    tokens = world.parts.manager.paused_kvs["a"].context_tokens
    assert tokens % 16
    swap_out(world, session)
    last = -(-tokens // 16)
    needed = {
        "full": last,
        "mla": last,
        "window": last - (tokens - 39) // 16,
        "mla-window": last - (tokens - 39) // 16,
        "chunk": last - tokens // 48 * 3,
        "state": 1,
    }
    assert world.link.saved == sum(needed[kind] for kind in layout.split("+"))
    assert not world.parts.manager.paused_kvs["a"].resident
    finishes(world)
    assert world.link.loaded == world.link.saved


@EVERY
def test_a_corrupted_copy_is_noticed_here(layout: str) -> None:
    world = make_world(layout, True, False)
    session = world.session("a", range(130), CALL, " 3]", " done")
    until_paused(world, session)
    swap_out(world, session)
    world.link.corrupts = True
    with pytest.raises(AssertionError, match=r"is not its own|is that of other tokens"):
        finishes(world)


@EVERY
@CACHED
@AHEAD
def test_a_load_that_fails_is_computed_again(layout: str, cached: bool, asynchronous: bool) -> None:
    world = make_world(layout, cached, asynchronous)
    session = world.session("a", range(130), CALL, " 3]", " done")
    until_paused(world, session)
    swap_out(world, session)
    world.link.refuses = lambda order: isinstance(order, Load)
    finishes(world)
    assert world.link.failures == 1
    assert world.computed_again["a"] > 130
    assert not world.parts.manager.planner.store.confirmed or cached


@pytest.mark.parametrize("layout", [one for one in LAYOUTS[2:] if one != "state"])
def test_nothing_is_begun_that_the_host_has_no_room_for(layout: str) -> None:
    world = make_world(layout, True, False, host_blocks=2)
    session = world.session("a", range(130), CALL, " 3]", " done")
    until_paused(world, session)
    swap_out(world, session)
    finishes(world)
    assert not world.link.saved


GROWING = pytest.mark.parametrize("layout", [one for one in LAYOUTS[2:] if "full" in one])


def crowded(layout: str, asynchronous: bool) -> tuple[World, Any, Any]:
    """One runs, and will pause; another waits, and needs blocks that the first one holds."""
    world = make_world(layout, True, asynchronous, blocks=32, write_behind_free_share=1.0)
    first = world.session("a", range(130), CALL, " 3]", " done")
    world.step()
    return world, first, world.session("b", range(1000, 1480), " done")


@GROWING
@AHEAD
def test_an_idle_engine_waits_for_the_copies_of_what_it_gives_up(
    layout: str, asynchronous: bool
) -> None:
    world, first, other = crowded(layout, asynchronous)
    stall(world)
    until_paused(world, first)
    for _ in range(20):
        world.step()
    planner = world.parts.manager.planner
    assert planner is not None and planner.busy
    assert not other.delivered
    flow(world)
    step_until(world, lambda: other.finished)
    releases = world.parts.manager.paused_kvs["a"].releases
    assert [(one.action, one.why) for one in releases] == [("swap", "admit")]
    finishes(world)
    assert not world.computed_again["a"] or not is_recurrent(layout)


@GROWING
@AHEAD
def test_copies_that_fail_are_waited_for_no_longer(layout: str, asynchronous: bool) -> None:
    world, first, other = crowded(layout, asynchronous)
    world.link.refuses = lambda order: True
    until_paused(world, first)
    step_until(world, lambda: other.finished, 60)
    assert [one.action for one in world.parts.manager.paused_kvs["a"].releases] == ["discard"]
    finishes(world)


@CACHED
@AHEAD
@pytest.mark.parametrize("layout", ["state+full", "state+window+full"])
def test_a_chunk_that_does_not_repeat_the_last_token_computes_it_again(
    layout: str, cached: bool, asynchronous: bool
) -> None:
    """A step in flight may have applied that token to the copied state."""
    world = make_world(layout, cached, asynchronous)
    session = world.session("a", range(130), CALL, " 3]", " done")
    until_paused(world, session)
    swap_out(world, session)
    session.parts[0][-1] = session.delivered[-1] = 7
    world.answer(session)
    finishes(world)


@CACHED
@AHEAD
@pytest.mark.parametrize("layout", LAYOUTS[2:])
@pytest.mark.parametrize("less", [0, 30])
def test_kv_kept_for_a_follow_up_is_loaded_by_it(
    layout: str, cached: bool, asynchronous: bool, less: int
) -> None:
    hermes = resolve(("hermes",), ())
    world = make_world(layout, cached, asynchronous, formats=hermes, max_model_len=320)
    asked = call(world)
    swap_out(world, asked)
    [kept] = retained(world).values()
    assert kept.swapped
    computed = first_chunk(world, follow_up(world, asked, less=less))
    ahead = asynchronous and is_recurrent(layout)
    assert computed < TOKENS - 1 if less else computed == TOKENS - 1 + ahead
    ends_well(world)
    assert not world.parts.manager.planner.loads.offers


@pytest.mark.parametrize("when", ["hosted", "loading", "kept"])
def test_an_abort_frees_everything(when: str) -> None:
    hermes = resolve(("hermes",), ())
    world = make_world("state+window+full", True, True, formats=hermes, max_model_len=320)
    if when == "kept":
        asked = call(world)
        swap_out(world, asked)
        session = follow_up(world, asked)
        stall(world)
        step_until(world, lambda: loading(world, session))
    else:
        session = world.session("a", range(130), CALL, " 3]", " done")
        until_paused(world, session)
        swap_out(world, session)
    if when == "loading":
        stall(world)
        world.answer(session)
        step_until(world, lambda: loading(world, session))
    world.abort(session)
    flow(world)
    ends_well(world)
    planner = world.parts.manager.planner
    assert not planner.busy
    assert not planner.loads.offers


@EVERY
@AHEAD
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(at, marks=pytest.mark.slow) for at in range(2, 24))]
)
def test_everything_finishes(layout: str, asynchronous: bool, seed: int) -> None:
    """Random clients, handlings that change their mind, a link that stalls and fails."""
    rng = random.Random(seed)
    world = make_world(
        layout,
        rng.random() < 0.6,
        asynchronous,
        blocks=rng.choice([34, 60, 120]),
        window=rng.choice([16, 40, 100]),
        max_num_seqs=rng.choice([2, 5, 16]),
        max_num_batched_tokens=rng.choice([32, 64, 512]),
        host_blocks=rng.choice([1, 30, 400]),
        in_step=rng.random() < 0.5,
        drafts=rng.choice([0, 0, 0, 3]),
        handling=rng.choice(HANDLINGS),
    )
    world.scheduler.use_v2_model_runner = asynchronous and rng.random() < 0.5
    if rng.random() < 0.4:
        world.scheduler.parts.manager.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    if rng.random() < 0.4:
        world.link.fails = lambda: rng.random() < 0.3
    for index in range(120):
        clients_act(world, rng, index)
    world.link.fails = lambda: False
    world.run(3000)
    all_is_told_and_nothing_left(world)
    manager = world.scheduler.parts.manager
    assert not manager.paused_kvs
    assert manager.planner is None or not (manager.planner.busy or manager.planner.loads.offers)
