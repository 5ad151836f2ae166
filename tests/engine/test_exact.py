"""Over any pause, greedy output is what the model says to the concatenated tokens from scratch."""

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

pytestmark = pytest.mark.engine


@pytest.fixture(
    scope="module",
    params=[(True, 512), (False, 512), (True, 48), (False, 48)],
    ids=["cache", "no-cache", "cache-chunked", "no-cache-chunked"],
)
def core(request: pytest.FixtureRequest) -> Iterator[Core]:
    prefix_caching, budget = request.param
    made = Core(
        enable_prefix_caching=prefix_caching, max_num_batched_tokens=budget, max_num_seqs=16
    )
    yield made
    made.close()
