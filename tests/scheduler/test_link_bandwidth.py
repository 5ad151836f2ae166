"""A link of another rate than was thought: what is loaded, what is recomputed, and how it ends."""

from dataclasses import replace

import pytest

from caesura.intercept.kv.costs import COPY_TOKENS, PRIOR
from caesura.scheduler.vllm.engine.kv.manager import PROBE_SECONDS
from caesura.scheduler.vllm.engine.swap.planner import Copied

from .steering import choose, faulty_world, finishes, paused_session, swap_out
from .world import World

RECOMPUTED = 1 / PRIOR.prefill_seconds_per_token


def assume(world: World, share: float) -> None:
    """The link is known to load at this share of the rate of recomputation."""
    rate = share * RECOMPUTED
    world.parts.costs.restart(replace(PRIOR, out_rate=rate, in_rate=rate))


def measured(world: World, share: float, direction: str = "out") -> None:
    """A worker reports a copy at this share of the rate of recomputation."""
    planner = world.parts.manager.planner
    assert planner is not None
    seconds = COPY_TOKENS / (share * RECOMPUTED)
    planner.copied.append(Copied(direction, COPY_TOKENS, seconds, 0.0))
    planner.copies_measured += 1


def resumed_from_host(world: World, share: float, beside: bool) -> bool:
    """A session whose KV is on the host alone comes back; return whether it was loaded."""
    one = paused_session(world)
    swap_out(world, one)
    if beside:
        world.session("b", range(500, 560), "x" * 200)
        for _ in range(4):
            world.step()
    assume(world, share)
    before = world.link.loaded
    world.answer(one)
    finishes(world)
    return world.link.loaded > before


@pytest.mark.parametrize(
    ("share", "beside", "loads"),
    [
        (2.0, False, True),
        (2.0, True, True),
        (0.5, False, False),
        (0.5, True, True),
        (0.1, False, False),
        (0.1, True, False),
    ],
)
def test_a_slow_link_is_used_only_where_it_spares_others(
    share: float, beside: bool, loads: bool
) -> None:
    assert resumed_from_host(faulty_world(), share, beside) == loads


def test_the_least_share_is_a_setting() -> None:
    assert resumed_from_host(faulty_world(min_link_share=0.05), 0.1, beside=True)
    assert not resumed_from_host(faulty_world(min_link_share=0.8), 0.5, beside=True)
    assert resumed_from_host(faulty_world(min_link_share=0), 0.1, beside=False)


def test_a_link_that_is_not_used_is_probed_and_used_again() -> None:
    world = faulty_world(handling="swap")
    manager = world.parts.manager
    assume(world, 1.5)
    for _ in range(60):
        measured(world, 0.1, "in")
    paused_session(world, prompt=200)
    for _ in range(3):
        world.step()
    assert not manager.views.swap_pays
    saved = []
    for _ in range(2):
        world.now += PROBE_SECONDS
        for _ in range(3):
            world.step()
        saved.append(world.link.saved)
    blocks = -(-COPY_TOKENS // world.block_size)
    assert saved == [saved[0] + blocks * index for index in range(2)]
    for _ in range(8):
        measured(world, 2.0)
        world.step()
    assert manager.views.swap_pays
    finishes(world)


def test_a_link_that_is_used_is_not_probed() -> None:
    world = faulty_world()
    session = paused_session(world)
    choose(world)
    for _ in range(4):
        world.now += PROBE_SECONDS
        world.step()
    assert world.link.saved == 0
    world.answer(session)
    finishes(world)
