"""However often the handling of a pause changes, and whatever moves, output stays the same tokens.

Sessions run through vLLM's real engine core, with our connector copying real KV, in a pool that
they overfill. A handling that changes its mind at random decides; what each session says must be
what the model says to the concatenated tokens from scratch.
"""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.scheduler.whims import Whims

from .core import Core
from .test_exact import PAUSES, Talk, answer, begin, plan, said_as_planned

pytestmark = pytest.mark.engine

POOL = 30
SESSIONS = 8


def make_core(
    prefix_caching: bool,
    budget: int,
    host_gib: float,
    link_gb_per_second: float | None = None,
    parallel: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Core:
    limit = {} if link_gb_per_second is None else {"link_gb_per_second": link_gb_per_second}
    return Core(
        enable_prefix_caching=prefix_caching,
        max_num_batched_tokens=budget,
        max_num_seqs=16,
        kv_transfer_config={
            "kv_connector": "CaesuraConnector",
            "kv_connector_module_path": "caesura.scheduler.vllm",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"host_gib": host_gib, **limit},
        },
        additional_config={"caesura": settings},
        **(parallel or {}),
    )


@pytest.fixture(
    scope="module",
    params=[(True, 512, 0.05), (False, 512, 0.05), (True, 48, 0.05), (False, 48, 0.002)],
    ids=["cache", "no-cache", "cache-chunked", "no-cache-chunked-small-host"],
)
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    made = make_core(*request.param)
    yield made
    made.close()


def talk_under_pressure(core: Core, talks: dict[str, Talk], rng: random.Random) -> list[str]:
    """Run all sessions to their end in a small pool; return how each resume was handled."""
    core.scheduler.reset_prefix_cache()
    pool = core.scheduler.kv_cache_manager.block_pool
    taken = pool.get_new_blocks(pool.get_num_free_blocks() - POOL)
    core.allowed_losses = len(taken)
    handlings = []
    try:
        begin(core, talks)
        for turn in range(PAUSES):
            core.run(talks)
            said_as_planned(core, talks, turn)
            for name in talks:
                resume = core.reports[name].get("resume")
                handlings += [resume["handling"]] if resume else []
            core.idle(rng.randint(0, 12))
            answer(core, talks, turn)
        core.run(talks)
        said_as_planned(core, talks, PAUSES)
        handlings += [core.reports[name]["resume"]["handling"] for name in talks]
    finally:
        pool.free_blocks(taken)
        core.allowed_losses = 0
    return handlings


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
