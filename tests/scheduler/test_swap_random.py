"""Random clients, handlings that change their mind, a link that stalls and fails."""

import random

import pytest

from .link import random_pace
from .test_random import random_session
from .whims import Whims
from .world import World, make_scheduler

HANDLINGS = ("preserve", "discard", "swap", "infercept", "ttl", "caesura")
WHIMSICAL = 0.5
SEEDS = [
    *range(10),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 100)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 0), (True, 1), (True, 3)])
def test_everything_finishes(seed: int, asynchronous: bool, depth: int) -> None:
    rng = random.Random(seed)
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 40, 60, 120]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 64, 512]),
            prefix_caching=rng.random() < 0.7,
            asynchronous=asynchronous,
            host_blocks=rng.choice([1, 20, 400]),
            in_step=rng.random() < 0.5,
            handling=rng.choice(HANDLINGS),
            prefetch=rng.choice([0, 0, 3, 30]),
        ),
        depth,
    )
    if rng.random() < WHIMSICAL:
        world.scheduler._keeper.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    if rng.random() < 0.4:
        world.link.fails = lambda: rng.random() < 0.1
    for index in range(150):
        if rng.random() < 0.25:
            random_session(world, rng, index)
        world.step()
        for session in world.sessions.values():
            if session.paused and not session.finished and rng.random() < 0.2:
                world.answer(session)
            elif not session.finished and rng.random() < 0.005:
                world.abort(session)
    world.link.fails = lambda: False
    world.run(3000)
    scheduler = world.scheduler
    assert scheduler.requests == {}
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not scheduler._pauses
    assert not scheduler._keeper.holdings
    planner = scheduler._keeper.planner
    assert planner is None or not planner.busy
    for session in world.sessions.values():
        if session.reports and session.reports[-1].get("verdict") == "end":
            decoded = [token for part in session.parts[::2] for token in part]
            assert session.delivered == decoded
