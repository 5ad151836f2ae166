"""The exactness tests on engines that speculate; `test_exact_drafts.py` runs each in a process."""

from collections.abc import Iterator

import pytest

from tests.engine.exactness import (
    test_control_a_lost_token_would_be_noticed,
    test_eight_sessions_at_once,
    test_under_pressure,
)

from .core import Core

__all__ = [
    "test_control_a_lost_token_would_be_noticed",
    "test_eight_sessions_at_once",
    "test_under_pressure",
]


@pytest.fixture(
    scope="module",
    params=[(True, 512, 3), (False, 112, 4)],
    ids=["cached", "chunked"],
)
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    prefix_caching, budget, drafts = request.param
    made = Core(
        drafts,
        enable_prefix_caching=prefix_caching,
        max_num_batched_tokens=budget,
        max_num_seqs=16,
    )
    yield made
    assert made.confirmed_drafts, "no draft was confirmed"
    made.close()
