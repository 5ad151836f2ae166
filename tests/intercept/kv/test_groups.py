"""Prices where layers differ: windows and states beside the KV that grows with the context.

With one group of full attention every price is the one of the equations as InferCept has them.
"""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv import waste
from caesura.intercept.kv.handling import recompute_turnover_seconds, wastes
from caesura.intercept.kv.step_budget import SHORT_PAUSE, link_blocks, turnover_seconds
from caesura.intercept.kv.views import ONE_GROUP, Groups, PausedKVView, StepView

from .views import ANY_STEP, COST, any_paused, paused, step

QWEN_3_NEXT = Groups(growing=1, states=3)
GEMMA_3 = Groups(growing=1, windows=(64,) * 6)
ANY_GROUPS = st.builds(
    Groups,
    growing=st.integers(1, 4),
    windows=st.lists(st.integers(1, 64), max_size=6).map(tuple),
    states=st.integers(0, 12),
)


# -- one group: InferCept's equations, written out once more ------------------------------------


def plain_discard(one: PausedKVView, view: StepView) -> float:
    lost, copied, total = one.uncopied, one.resident - one.uncopied, 0.0
    if copied > 0:
        load = view.cost.swap_seconds(copied * view.block_size, "in")
        if load == inf:
            lost = one.resident
        else:
            total = load * copied
    if lost > 0:
        size = lost * view.block_size
        again = view.cost.recompute(size, view.running_tokens, view.running_context)
        others = view.running_context / view.block_size
        total += again.seconds * lost / 2 + again.chunks * again.seconds_per_chunk * others
    return total


def plain_swap(one: PausedKVView, view: StepView) -> float:
    if not view.swap_pays or one.uncopied > view.host_free:
        return inf
    excess = one.uncopied - view.link_blocks
    if excess <= 0:
        return 0.0
    size = excess * view.block_size
    both = view.cost.swap_seconds(size, "out") + view.cost.swap_seconds(size, "in")
    return both if both == inf else both * (view.running_context / view.block_size)


@given(any_paused("a"), ANY_STEP, st.sampled_from([16, 32, 48, 1600]))
def test_one_group_of_full_attention_has_the_prices_of_the_paper(
    one: PausedKVView, view: StepView, size: int
) -> None:
    view = replace(view, block_size=size)
    price = waste.prices(one, view)
    if one.resident:
        assert price.preserve == one.remaining * one.resident
        assert price.discard == plain_discard(one, view)
        assert price.swap == plain_swap(one, view)
    cost, total = view.cost, view.total_blocks
    assert turnover_seconds(view) == SHORT_PAUSE * cost.swap_seconds(total * size, "in")
    assert recompute_turnover_seconds(view) == cost.prefill_seconds_per_token * total * size
    running, context = view.running_tokens, view.running_context
    assert link_blocks(cost, running, context, size) == link_blocks(
        cost, running, context, size, ONE_GROUP
    )


# -- several groups ------------------------------------------------------------------------------


def test_what_a_context_holds_by_hand() -> None:
    assert QWEN_3_NEXT.blocks(5440, 544) == 10 + 3
    assert GEMMA_3.blocks(320, 16) == 20 + 6 * 20  # no window is full yet
    assert GEMMA_3.blocks(32_000, 16) == 2000 + 6 * 64
    assert Groups(growing=2).blocks(1600, 16) == 200
    # Two requests with 160 tokens each.
    assert Groups(1, (4,), 5).blocks(320, 16, requests=2) == 20 + 2 * (4 + 5)


def test_what_a_model_without_full_attention_holds() -> None:
    mistral, mamba = Groups(growing=0, windows=(256,)), Groups(growing=0, states=1)
    assert mistral.blocks(32_000, 16) == 256
    assert mamba.blocks(32_000, 16) == 1
    assert 32_000 + mistral.fixed_tokens(32_000, 16) == 4096
    assert 32_000 + mamba.fixed_tokens(32_000, 16) == 16
    assert ONE_GROUP.fixed_tokens(32_000, 16) == 0


@given(
    st.one_of(ANY_GROUPS, st.builds(Groups, st.just(0), st.just((4, 9)), st.integers(0, 3))),
    st.integers(0, 100_000),
    st.sampled_from([16, 544]),
)
def test_blocks_tell_the_context_that_they_hold(groups: Groups, tokens: int, size: int) -> None:
    found = groups.context(groups.blocks(tokens, size), size)
    if groups.growing:
        assert found == pytest.approx(tokens)
    else:
        assert found >= tokens - 1e-9


@given(ANY_GROUPS, st.integers(1, 100_000), st.sampled_from([16, 544]))
def test_memory_in_tokens_is_that_of_the_blocks(groups: Groups, tokens: int, size: int) -> None:
    held = tokens + groups.fixed_tokens(tokens, size)
    assert groups.of_tokens(held, size) == pytest.approx(groups.blocks(tokens, size))


def test_groups_in_words() -> None:
    assert ONE_GROUP.told() == "1 of full attention"
    assert GEMMA_3.told() == "1 of full attention, 6 of a window"
    assert QWEN_3_NEXT.told() == "1 of full attention, 3 of recurrent state"


def test_a_block_moves_the_bytes_of_as_many_tokens_of_full_attention() -> None:
    assert step(groups=QWEN_3_NEXT).tokens(10) == 160
    assert step(groups=Groups(growing=2)).tokens(10) == 80


def test_states_are_held_from_the_first_chunk_on() -> None:
    view = step(groups=QWEN_3_NEXT)
    one = paused(blocks=53, context_tokens=800)  # 50 blocks that grow, and 3 states
    again = COST.recompute(800, view.running_tokens, view.running_context)
    others = 8000 / 16 + 16 * 3
    assert waste.discard_price(one, view) == pytest.approx(
        again.seconds * (3 + 50 / 2) + again.chunks * again.seconds_per_chunk * others
    )


def test_what_the_prefix_cache_keeps_need_not_be_recomputed() -> None:
    view = step(groups=QWEN_3_NEXT)
    all_of_it, behind = (
        waste.discard_price(paused(blocks=53, context_tokens=800, recomputed=tokens), view)
        for tokens in (800, 160)
    )
    again = COST.recompute(160, view.running_tokens, view.running_context)
    others = 8000 / 16 + 16 * 3
    assert behind < all_of_it
    # 43 blocks come at once: 40 that are found again, and 3 states.
    assert behind == pytest.approx(
        again.seconds * (43 + 10 / 2) + again.chunks * again.seconds_per_chunk * others
    )


def test_a_lost_state_brings_the_whole_context_with_it() -> None:
    """Copies of full attention alone spare nothing: the state has to be computed from the start."""
    view = step(groups=QWEN_3_NEXT)
    some = paused(blocks=53, copied=40, context_tokens=800)
    again = COST.recompute(800, view.running_tokens, view.running_context)
    assert waste.discard_price(some, view) > again.seconds * 13 / 2


def test_a_swap_moves_states_and_windows_too() -> None:
    view = step(link_blocks=60, groups=QWEN_3_NEXT)
    free = waste.swap_price(paused(blocks=60, context_tokens=57 * 16), view)
    more = waste.swap_price(paused(blocks=63, context_tokens=60 * 16), view)
    assert free == 0
    assert more == pytest.approx(2 * 3 * 16 / 100_000 * (8000 / 16 + 16 * 3))


def test_lamps_counts_states_as_memory_and_as_bytes_to_copy() -> None:
    bare, stateful = (wastes(800, 5.0, 4000, True, COST, fixed) for fixed in (0.0, 48.0))
    assert stateful.preserve == pytest.approx(bare.preserve * 848 / 800)
    seconds = 848 / 100_000
    assert stateful.swap == pytest.approx(2 * seconds * 4848)
    assert stateful.discard - bare.discard == pytest.approx(COST.step_seconds(800, 800) * 48)


@given(ANY_GROUPS, st.integers(1, 100_000), st.integers(0, 5000), st.sampled_from([16, 544]))
def test_a_longer_context_holds_no_fewer_blocks(
    groups: Groups, tokens: int, more: int, size: int
) -> None:
    assert groups.blocks(tokens + more, size) >= groups.blocks(tokens, size)
    least = groups.states + groups.growing * tokens / size
    assert groups.blocks(tokens, size) >= least * (1 - 1e-12)


@given(any_paused("a"), ANY_STEP, ANY_GROUPS)
def test_no_price_is_negative(one: PausedKVView, view: StepView, groups: Groups) -> None:
    price = waste.prices(one, replace(view, groups=groups))
    assert min(price.preserve, price.discard, price.swap) >= 0


@given(any_paused("a"), ANY_STEP, ANY_GROUPS, st.integers(0, 500), st.integers(0, 500))
def test_a_later_checkpoint_makes_a_discard_no_dearer_for_others(
    one: PausedKVView, view: StepView, groups: Groups, tokens: int, fewer: int
) -> None:
    """The engine works less; only what is found again is held while it does."""
    view = replace(view, groups=groups)
    near, far = (
        view.cost.recompute(each, view.running_tokens, view.running_context)
        for each in (max(0, tokens - fewer), tokens)
    )
    assert near.chunks * near.seconds_per_chunk <= far.chunks * far.seconds_per_chunk + 1e-9
    kept = replace(one, recomputed=max(0, tokens - fewer))
    assert waste.discard_price(kept, view) >= 0
