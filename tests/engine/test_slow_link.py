"""A link that is limited to a rate changes no token, and the scheduler learns its rate."""

from collections.abc import Iterator

import pytest
from vllm.distributed.kv_transfer.kv_transfer_state import get_kv_transfer_group

from tests.engine.exactness import PAUSES, make_core, plan
from tests.engine.swapping import come_back, swapping_all

from .core import Core

pytestmark = pytest.mark.engine

BLOCK_BYTES = 2 * 3 * 2 * 32 * 4 * 32
"""Keys and values of a block: layers, heads, dimensions, bytes of a float, tokens."""
SECONDS_PER_BLOCK = 0.004
LINK_GB_PER_SECOND = BLOCK_BYTES / SECONDS_PER_BLOCK / 1e9


@pytest.fixture(scope="module")
def core() -> Iterator[Core]:
    made = make_core(True, 48, 0.05, LINK_GB_PER_SECOND)
    with swapping_all(made):
        yield made
    made.close()


def test_a_slow_link_changes_nothing_and_its_rate_is_learned(core: Core) -> None:
    talks = {f"s{seed}": plan(core, 700 + seed) for seed in range(4)}
    copier = get_kv_transfer_group()._worker._copier
    views = core.scheduler.parts.manager.views
    true_rate = 32 / SECONDS_PER_BLOCK
    assert views.step().cost.in_rate > 2 * true_rate
    for _ in range(3):
        assert all(come_back(core, copier, talks, PAUSES).values())
    views.new_step()
    # A busy machine wakes the copying thread late, so a copy may take longer than the link's time.
    assert true_rate / 10 < views.step().cost.in_rate < 1.1 * true_rate
