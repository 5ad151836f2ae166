"""Requests of one client name their engine, and count there while their turns last."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from caesura.scheduler.policy.routing import Asked
from caesura.scheduler.vllm.client.data_parallel import (
    Route,
    Routes,
    combined,
    kv_tokens_of,
    ranks_of,
)

CONTEXT = list(range(1000))


def config(engines: int, local: int | None = None) -> Any:
    parallel = SimpleNamespace(
        data_parallel_size=engines,
        data_parallel_size_local=local or engines,
        local_engines_only=local is not None,
    )
    # vLLM's client adds up the blocks of all engines.
    cache = SimpleNamespace(num_gpu_blocks=100 * engines, block_size=32, kv_cache_size_tokens=None)
    return SimpleNamespace(parallel_config=parallel, cache_config=cache)


def routes(engines: int) -> Routes:
    return Routes(config(engines))


def output(tokens: list[int], finish: str | None = None) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(token_ids=tokens, finish_reason=finish)])


def turns(of: Routes) -> list[int]:
    return [int(load.requests) for load in of.loads]


def test_one_engine_is_not_named_and_nothing_is_counted() -> None:
    one = routes(1)
    route = one.of(CONTEXT)
    assert type(route) is Route and route.rank is None and not one.several


def test_a_session_returns_to_the_engine_that_decoded_its_answer() -> None:
    two = routes(2)
    first, other = two.of(CONTEXT), two.of([7] * 500)
    assert {first.rank, other.rank} == {0, 1}
    assert turns(two) == [1, 1]
    answer = list(range(5000, 5200))
    first.sampled(output(answer[:1]))
    first.sampled(output(answer[1:], "stop"))
    other.sampled(output([1], "stop"))
    assert turns(two) == [0, 0]
    first.pushed([answer[-1], *range(300)])
    assert turns(two)[first.rank or 0] == 1
    first.sampled(output([4, 5], "stop"))
    context = [*CONTEXT, *answer, *range(300), 4, 5]
    followed = two.of([*context, 6])
    assert followed.rank == first.rank
    asked = Asked(prefixes=followed._trail.prefixes)  # type: ignore[attr-defined]
    assert followed._router.weigh(asked, two.loads).held_tokens >= len(context) - 64  # type: ignore[attr-defined]


def test_a_turn_that_breaks_off_no_longer_counts() -> None:
    two = routes(2)
    route = two.of(CONTEXT)
    route.ended()
    route.ended()
    assert turns(two) == [0, 0]
    assert [load.prefill_tokens for load in two.loads] == [0, 0]


def test_choices_are_counted_by_engine_and_reason() -> None:
    def count(why: str) -> float:
        return sum(
            REGISTRY.get_sample_value(
                "caesura_routed_requests_total", {"engine": str(engine), "why": why}
            )
            or 0
            for engine in range(2)
        )

    two, before = routes(2), (count("new"), count("kept"))
    two.of(CONTEXT).ended()
    two.of([*CONTEXT, 1]).ended()
    assert (count("new"), count("kept")) == (before[0] + 1, before[1] + 1)


def test_ranks_are_those_that_the_process_has_started() -> None:
    assert list(ranks_of(config(4))) == [0, 1, 2, 3]
    assert list(ranks_of(config(4, local=2))) == [0, 1]
    assert kv_tokens_of(config(4)) == 100 * 32
    several_groups = config(4)
    several_groups.cache_config.kv_cache_size_tokens = 800
    assert kv_tokens_of(several_groups) == 800


@pytest.mark.parametrize("engines", [1, 3])
def test_states_are_added_up(engines: int) -> None:
    state = {"running": 2, "handling": "caesura", "prompts": {"asked": 3}}
    total = combined([state] * engines)
    assert total["running"] == 2 * engines
    assert total["handling"] == "caesura"
    assert total["prompts"] == {"asked": 3 * engines}
    assert ("engines" in total) == (engines > 1)
