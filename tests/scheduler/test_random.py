"""Random clients against the real scheduler: whatever they do, nothing is lost and all finish."""

import random

import pytest

from tests.scheduler.clients import all_is_told_and_nothing_left, clients_act

from .world import World, make_scheduler

SEEDS = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 100)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("asynchronous", "depth"), [(False, 0), (True, 1), (True, 3)])
def test_everything_finishes(seed: int, asynchronous: bool, depth: int) -> None:
    rng = random.Random(seed)
    world = World(
        make_scheduler(
            blocks=rng.choice([34, 60, 200]),
            max_num_seqs=rng.choice([2, 5, 16]),
            max_num_batched_tokens=rng.choice([32, 64, 512]),
            prefix_caching=rng.random() < 0.7,
            asynchronous=asynchronous,
        ),
        depth,
    )
    for index in range(150):
        clients_act(world, rng, index)
        held = [name for name, one in world.parts.served.paused.items() if one.pause.held]
        if held and rng.random() < 0.1:
            world.drop_kv(rng.choice(held))
    world.run(2000)
    scheduler = world.scheduler
    all_is_told_and_nothing_left(world)
    assert not scheduler.parts.served
    assert scheduler.num_waiting_for_streaming_input == 0
