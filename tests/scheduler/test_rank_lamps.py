"""LAMPS' memory over time: the curves by hand, the predicted handling, and its properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.policy.lamps import call_memory, memory_over_time, predicted_handling
from caesura.scheduler.policy.ranking import Queued, QueueView

from .queues import ANY_VIEW, any_queued, forecast, queued, score, view

UNIT = CostModel(0.0, 1.0, 1.0, 0.0, 1, out_rate=2.0, in_rate=4.0)


def test_the_three_curves_by_hand() -> None:
    assert call_memory("preserve", 10, 3.0, 90, UNIT) == 3 * 10
    assert call_memory("discard", 10, 3.0, 0, UNIT) == 10 * 10 / 2
    assert call_memory("discard", 10, 3.0, 90, UNIT) == 10 * 10 / 2 + 10 * 90
    assert call_memory("swap", 10, 3.0, 0, UNIT) == 10 * 10 / 2 + 10 * 10 / 4
    assert call_memory("swap", 10, 3.0, 90, UNIT) == 100 * 10 / 2 + 100 * 10 / 4


def test_a_segment_by_hand() -> None:
    one = queued(context_tokens=10, resident_tokens=3, hosted_tokens=2, decode_tokens=4.0)
    seen = view(step_seconds=0.5, batch_tokens=90, cost=UNIT)
    until_call = (2 / 4) * 5 + 5 * 7.5 + 4 * 0.5 * 12  # load, then fill, then decode
    last = replace(one, forecast=replace(one.forecast, ends=()))
    assert memory_over_time(last, seen, "preserve") == until_call
    assert memory_over_time(one, seen, "preserve") == pytest.approx(until_call + 0.9 * 14 * 1.0)
    discard = 14 * 14 / 2 + 14 * 90
    assert memory_over_time(one, seen, "discard") == pytest.approx(until_call + 0.9 * discard)
    assert memory_over_time(one, seen, "discard", others=False) == pytest.approx(
        until_call + 0.9 * 14 * 14 / 2
    )


@given(any_queued(), ANY_VIEW, st.floats(1, 500), st.floats(1, 100))
def test_more_to_decode_and_longer_plateaus_take_more_memory(
    one: Queued, seen: QueueView, tokens: float, seconds: float
) -> None:
    base = replace(one.forecast, ends=(0.0,))
    more = replace(base, decode_tokens=base.decode_tokens + tokens)
    longer = replace(base, pause_seconds=base.pause_seconds + seconds)
    for handling in ("preserve", "discard", "swap"):
        memory = memory_over_time(replace(one, forecast=base), seen, handling)
        assert memory_over_time(replace(one, forecast=more), seen, handling) > memory
        plateau = memory_over_time(replace(one, forecast=longer), seen, handling)
        assert plateau > memory if handling == "preserve" else plateau == memory


@given(any_queued(), ANY_VIEW, st.floats(0, 1))
def test_the_end_takes_the_call_away_in_proportion(
    one: Queued, seen: QueueView, chance: float
) -> None:
    def memory(ends: tuple[float, ...]) -> float:
        return memory_over_time(replace(one, forecast=forecast(ends=ends)), seen, "preserve")

    expected = chance * memory((1.0,)) + (1 - chance) * memory((0.0,))
    assert memory((chance,)) == pytest.approx(expected)
    assert memory(()) == memory((1.0,))


def test_the_handling_is_predicted_by_the_pause_the_context_and_the_batch() -> None:
    assert predicted_handling(queued(pause_seconds=1e-4), view()) == "preserve"
    assert predicted_handling(queued(pause_seconds=60.0), view()) == "swap"
    assert predicted_handling(queued(pause_seconds=60.0), view(swap_pays=False)) == "discard"
    # Preserving 1030 tokens for a second, or 0.0309 s of copying while all wait: alike at 32,303.
    for others, handling in ((33_000, "preserve"), (32_000, "swap")):
        assert predicted_handling(queued(), view(batch_tokens=others)) == handling


def test_the_score_is_that_of_the_predicted_handling() -> None:
    for seconds, handling in ((1e-4, "preserve"), (60.0, "swap")):
        one = queued(pause_seconds=seconds)
        assert score("lamps", one) == (1.0, memory_over_time(one, view(), handling))
        own = memory_over_time(one, view(), handling, others=False)
        assert score("lamps:others=no", one) == (1.0, own)


@given(any_queued(), any_queued(), ANY_VIEW)
def test_those_that_starve_go_first_in_the_order_of_arrival(
    one: Queued, other: Queued, seen: QueueView
) -> None:
    starved, also = replace(one, starved=True), replace(other, starved=True)
    assert score("lamps", starved, seen) < score("lamps", replace(other, starved=False), seen)
    by_arrival = one.arrival < other.arrival
    assert (score("lamps", starved, seen) < score("lamps", also, seen)) == by_arrival
