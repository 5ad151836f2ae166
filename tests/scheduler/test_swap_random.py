"""Random clients, handlings that change their mind, a link that stalls and fails."""

import random

import pytest

from tests.scheduler.clients import all_is_told_and_nothing_left, clients_act

from .link import random_pace
from .whims import Whims
from .world import World, make_scheduler

HANDLINGS = ("preserve", "discard", "swap", "infercept", "lamps", "ttl", "caesura")
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
        ),
        depth,
    )
    if rng.random() < WHIMSICAL:
        world.scheduler.parts.manager.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    if rng.random() < 0.4:
        world.link.fails = lambda: rng.random() < 0.1
    for index in range(150):
        clients_act(world, rng, index)
    world.link.fails = lambda: False
    world.run(3000)
    all_is_told_and_nothing_left(world)
    manager = world.scheduler.parts.manager
    assert not manager.paused_kvs
    planner = manager.planner
    assert planner is None or not planner.busy
