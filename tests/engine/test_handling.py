"""However often the handling of a pause changes, and whatever moves, output stays the same tokens.

Sessions run through vLLM's real engine core, with our connector copying real KV, in a pool that
they overfill. A handling that changes its mind at random decides; what each session says must be
what the model says to the concatenated tokens from scratch.
"""

import random
from collections.abc import Iterator

import pytest

from tests.engine.exactness import (
    make_core,
    plan,
    talk_under_pressure,
)
from tests.engine.swapping import loads_pay
from tests.scheduler.whims import Whims

from .core import Core

pytestmark = pytest.mark.engine

SESSIONS = 8


@pytest.fixture(
    scope="module",
    params=[(True, 512, 0.05), (False, 512, 0.05), (True, 48, 0.05), (False, 48, 0.002)],
    ids=["cache", "no-cache", "cache-chunked", "no-cache-chunked-small-host"],
)
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    made = make_core(*request.param)
    with loads_pay(made):
        yield made
    made.close()


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))]
)
def test_whims(core: Core, seed: int) -> None:
    rng = random.Random(seed)
    core.scheduler.parts.manager.handling = Whims(rng)
    talks = {f"whims-{seed}-{n}": plan(core, 1000 * seed + n) for n in range(SESSIONS)}
    handlings = talk_under_pressure(core, talks, rng)
    assert "swap" in handlings and len(set(handlings)) > 1, handlings
    assert core.scheduler.requests == {}
