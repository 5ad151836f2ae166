"""The account of a pause: its cost, that of each alternative, and the regret."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.pressure import Charge, Pressure
from caesura.intercept.kv.views import PausedKVView, StepView
from caesura.intercept.kv.waste import Account, Came, account, discard_price

from .views import ANY_STEP, any_paused, paused, step

VIEW = paused(blocks=50)


def held(
    seconds: float, lacked: float = 0.0, blocks: int = 50, kept: int = 50, free: int = 0
) -> Charge:
    """A pause of `seconds` that keeps `kept` of its blocks, while others lack `lacked`."""
    pressure = Pressure()
    charge = pressure.begin(0.0, blocks)
    pressure.change(charge, 0.0, kept)
    pressure.lack(0.0, lacked, free)
    pressure.result(charge, seconds)
    pressure.end(charge, seconds)
    return charge


def told(charge: Charge, came: Came, **step_changes: object) -> Account:
    return account(VIEW, step(**step_changes), charge, came)


def test_where_memory_was_free_keeping_cost_nothing() -> None:
    assert told(held(60.0), Came(60.0, back=True)) == Account(0.0, None, None)


def test_an_unneeded_discard_is_regretted_in_full() -> None:
    given_up = held(60.0, kept=0, free=500)
    said = told(given_up, Came(60.0, back=True, recomputed_tokens=VIEW.context_tokens))
    assert said.hindsight is not None
    assert said.hindsight.preserve == 0
    assert said.cost == said.regret == discard_price(VIEW, step()) > 0


def test_keeping_is_regretted_as_far_as_others_lacked_blocks() -> None:
    """50 blocks are kept for a minute, in which others lack 20."""
    said = told(held(60.0, lacked=20), Came(60.0, back=True))
    assert said.hindsight is not None and said.regret is not None
    assert said.cost == said.hindsight.preserve == pytest.approx(20 * 60)
    assert said.regret == said.cost - min(said.hindsight.discard, said.hindsight.swap)
    assert 0 < said.regret < said.cost


def test_the_part_behind_the_result_counts_those_who_lacked_blocks_then() -> None:
    """50 blocks, free for a minute, then lacked by others for 6 s in which the request queues."""
    pressure = Pressure()
    charge = pressure.begin(0.0, 50)
    pressure.result(charge, 60.0)
    pressure.lack(60.0, 20, 0)
    pressure.end(charge, 66.0)
    said = told(charge, Came(60.0, back=True))
    assert said.cost == said.queued == pytest.approx(20 * 6) and said.worked == 0
    assert (charge.wanted.wanted, charge.queued.wanted) == (0.0, 6.0)


def test_what_its_own_request_lacks_costs_nobody_else_anything() -> None:
    """It comes back for blocks that it gave up, and nobody else lacks any: no cost, no regret."""
    pressure = Pressure()
    charge = pressure.begin(0.0, 50)
    pressure.change(charge, 0.0, 40)
    pressure.lack(0.0, 0.0, 500)
    pressure.result(charge, 60.0)
    pressure.lack(60.0, 10, 0, {charge: 10})
    pressure.lack(63.0, 30, 0, {charge: 10})
    pressure.lack(64.0, 0, 500)
    pressure.end(charge, 66.0)
    assert charge.queued_cost == charge.cost == pytest.approx(20)
    assert charge.queued.wanted == pytest.approx(1.0)


def test_a_discard_that_others_used_is_not_regretted() -> None:
    """Memory was never lacked since it was given up: without that, others had lacked all of it."""
    came = Came(60.0, back=True, recomputed_tokens=VIEW.context_tokens)
    said = told(held(60.0, kept=0), came, swap_pays=False)
    assert said.hindsight is not None and said.hindsight.swap == inf
    assert said.hindsight.preserve == pytest.approx(50 * 60)
    assert said.regret == 0


def test_swapping_is_not_free() -> None:
    """Its blocks are held until they are copied, and its request waits for the load."""
    view = step()
    said = account(VIEW, view, held(60.0, lacked=50), Came(60.0, back=True))
    load = view.cost.swap_seconds(800, "in") * 50
    copies = view.cost.swap_seconds(800, "out")
    beside = 50 / 60 * view.cost.step_seconds(16, 8000)
    assert said.hindsight is not None
    assert said.hindsight.swap == pytest.approx(load + 50 / 2 * max(copies, beside))


def test_a_load_counts_as_its_swap_does() -> None:
    """Swapped at once while nobody wants memory: the load is all that it cost, and for nothing."""
    said = told(held(60.0, kept=0, free=500), Came(60.0, back=True, loaded_tokens=800))
    assert said.hindsight is not None
    assert said.cost == said.hindsight.swap == said.regret > 0


def test_of_a_session_that_never_came_back_nothing_was_worth_keeping() -> None:
    said = told(held(60.0, lacked=20), Came(60.0, back=False))
    assert said.hindsight is not None and said.hindsight.discard == 0
    assert said.regret == said.cost == pytest.approx(20 * 60)


@given(
    any_paused("a"),
    ANY_STEP,
    st.floats(0, 100),
    st.floats(0, 100),
    st.integers(0, 60),
    st.booleans(),
    st.integers(0, 500),
    st.integers(0, 500),
)
def test_no_account_is_negative(
    view: PausedKVView,
    engine: StepView,
    seconds: float,
    lacked: float,
    kept: int,
    back: bool,
    loaded: int,
    recomputed: int,
) -> None:
    charge = held(seconds, lacked, view.resident, min(kept, view.resident))
    said = account(view, engine, charge, Came(seconds, back, loaded, recomputed))
    assert said.cost >= 0
    if said.hindsight is None:
        assert said.regret is None and said.cost == 0
        return
    alternatives = (said.hindsight.preserve, said.hindsight.discard, said.hindsight.swap)
    assert min(alternatives) >= 0
    assert said.regret == max(0.0, said.cost - min(alternatives))
