"""InferCept's equations, by hand, and the prices that are made of them."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv import waste
from caesura.intercept.kv.costs import Recompute
from caesura.intercept.kv.views import PausedKVView, StepView

from .views import ANY_STEP, any_paused, paused, step


def test_the_equations_by_hand() -> None:
    assert waste.waste_discard(2.0, blocks=10, other_blocks=100) == 2 * 10 + 2 * 100
    assert waste.waste_preserve(3.0, blocks=10) == 30
    assert waste.waste_swap(0.5, 0.25, batch_blocks=100) == 75
    chunked = Recompute(seconds=4.0, chunks=4, seconds_per_chunk=0.1)
    assert waste.waste_chunked_discard(chunked, 10, 100) == pytest.approx(
        4 * 10 / 2 + 4 * 0.1 * 100
    )
    assert waste.least_waste(3.0, 2.0) == 2.0


def test_chunks_waste_less_than_one_long_step() -> None:
    view = step()
    at_once = view.cost.step_seconds(view.running_tokens + 1600, view.running_context)
    whole = waste.waste_discard(at_once, 100, view.running_context / 16)
    assert waste.discard_price(paused(blocks=100), view) < whole


def test_swapping_is_free_as_far_as_it_hides() -> None:
    assert waste.prices(paused(blocks=60), step(link_blocks=60)).swap == 0
    beyond = waste.prices(paused(blocks=70), step(link_blocks=60)).swap
    assert beyond == pytest.approx(2 * 160 / 100_000 * 8000 / 16)


@pytest.mark.parametrize("change", [{"swap_pays": False}, {"host_free": 49}])
def test_swapping_is_no_alternative_everywhere(change: dict[str, object]) -> None:
    assert waste.prices(paused(blocks=50), step(**change)).swap == inf


def test_a_copy_is_loaded_rather_than_recomputed() -> None:
    bare, copied = (waste.discard_price(paused(blocks=50, copied=n), step()) for n in (0, 50))
    assert 0 < copied < bare


def test_without_a_link_everything_is_recomputed() -> None:
    """A last block that is not full needs no copy, and must not cost a load that never ends."""
    no_link = step(cost=replace(step().cost, in_rate=0.0, out_rate=0.0), swap_pays=False)
    partial = paused(blocks=50, uncopied=49)
    assert waste.discard_price(partial, no_link) == waste.discard_price(paused(blocks=50), no_link)


def test_nothing_resident_costs_nothing() -> None:
    assert waste.prices(paused(blocks=0), step()) == waste.Prices(0, 0, 0)


def test_what_is_missing_already_is_no_part_of_the_choice() -> None:
    assert waste.prices(paused(missing=40), step()) == waste.prices(paused(), step())


@given(any_paused("a"), ANY_STEP)
def test_no_price_is_negative(one: PausedKVView, view: StepView) -> None:
    price = waste.prices(one, view)
    assert min(price.preserve, price.discard, price.swap) >= 0


@given(any_paused("a"), ANY_STEP, st.floats(0, 100))
def test_preserving_grows_with_what_remains(one: PausedKVView, view: StepView, more: float) -> None:
    longer = replace(one, remaining=one.remaining + more)
    assert waste.prices(longer, view).preserve >= waste.prices(one, view).preserve
    assert waste.prices(longer, view).discard == waste.prices(one, view).discard


@given(ANY_STEP, st.integers(0, 50), st.integers(0, 50))
def test_discarding_grows_with_what_is_lost(view: StepView, blocks: int, more: int) -> None:
    less = waste.discard_price(paused(blocks=blocks), view)
    assert less <= waste.discard_price(paused(blocks=blocks + more), view) + 1e-9
