"""LAMPS' handling: the equations by hand, one answer for the whole pause, and its thresholds."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from caesura.intercept.kv.costs import CostModel
from caesura.intercept.kv.handling import forward_seconds, least, make_handling, wastes
from caesura.intercept.kv.views import PausedKVView, Prices, StepView

from .views import ANY_STEP, COST, any_paused, any_pauses, known, paused, step

UNIT = CostModel(0.0, 1.0, 1.0, 0.0, 1, out_rate=2.0, in_rate=4.0)


def actions(pauses: list[PausedKVView], view: StepView) -> dict[str, str]:
    return {one.key: one.action for one in make_handling("lamps").decide(pauses, view)}


def test_the_equations_by_hand() -> None:
    waste = wastes(10, 3.0, 90, True, UNIT)
    assert waste.preserve == 3 * 10
    assert waste.discard == 10 * 10 + 10 * 90
    assert waste.swap == (10 / 2 + 10 / 4) * (10 + 90)
    assert wastes(10, 3.0, 90, False, UNIT) == Prices(30.0, 1000.0, inf)
    assert forward_seconds(300, 300, COST) == pytest.approx(
        0.01 + 256 * 2e-5 + 44 * 8e-5 + 300 * 3e-8
    )
    assert forward_seconds(0, 300, COST) == 0.0


@pytest.mark.parametrize(
    ("prices", "action"),
    [
        (Prices(1, 2, 3), "preserve"),
        (Prices(2, 1, 3), "discard"),
        (Prices(3, 2, 1), "swap"),
        (Prices(1, 1, 1), "preserve"),
        (Prices(2, 1, 1), "discard"),
        (Prices(2, 1, inf), "discard"),
    ],
)
def test_the_least(prices: Prices, action: str) -> None:
    assert least(prices) == action


def test_a_decision_by_hand() -> None:
    # 50 blocks of 16 tokens in a memory of 1000: all others are taken to hold 950.
    view = step()
    decided = make_handling("lamps").decide([paused(durations=known(120.0))], view)[0]
    assert decided.action == "swap"
    wasted = wastes(800, 120.0, 950 * 16, True, view.cost)
    forward = 0.01 + 256 * 2e-5 + 544 * 8e-5 + 800 * 3e-8
    assert wasted.preserve / 16 == pytest.approx(120 * 50)
    assert wasted.discard / 16 == pytest.approx(forward * 1000)
    assert wasted.swap / 16 == pytest.approx(2 * 800 / 100_000 * 1000)


def test_by_the_length_of_the_pause() -> None:
    for seconds, action in ((0.3, {}), (0.4, {"a": "swap"}), (1e3, {"a": "swap"})):
        assert actions([paused(durations=known(seconds))], step()) == action
    for seconds, action in ((1.1, {}), (1.3, {"a": "discard"})):
        one = paused(durations=known(seconds))
        assert actions([one], step(swap_pays=False)) == action


def test_a_swap_is_charged_as_if_it_held_up_the_batch() -> None:
    """Unlike InferCept, which hides it: a slow link is never used, however long the pause."""
    slow = step(cost=replace(COST, out_rate=20_000.0, in_rate=20_000.0), link_blocks=1000)
    long = paused(durations=known(1e3), remaining=1e3)
    assert actions([long], slow) == {"a": "discard"}
    assert make_handling("infercept").decide([long], slow)[0].action == "swap"


@settings(max_examples=100)
@given(
    one=any_paused("a"),
    view=ANY_STEP,
    elapsed=st.floats(0, 1000),
    remaining=st.floats(0, 1000),
    resident=st.integers(1, 60),
    uncopied=st.integers(0, 60),
    later=ANY_STEP,
)
def test_the_answer_stays_the_same_through_the_pause(
    one: PausedKVView,
    view: StepView,
    elapsed: float,
    remaining: float,
    resident: int,
    uncopied: int,
    later: StepView,
) -> None:
    assume(one.resident and not one.returned)
    after = replace(
        one,
        elapsed=elapsed,
        remaining=remaining,
        resident=resident,
        uncopied=min(uncopied, resident),
        missing=one.missing + 1,
    )
    moved = replace(later, swap_pays=view.swap_pays, cost=view.cost)
    assert actions([one], view) == actions([after], moved)


@settings(max_examples=60)
@given(st.integers(1, 5000), st.floats(0, 100), st.floats(0, 100), st.integers(0, 50_000))
def test_a_longer_pause_is_never_preserved_where_a_shorter_one_is_not(
    context: int, seconds: float, more: float, other: int
) -> None:
    shorter = wastes(context, seconds, other, True, COST)
    longer = wastes(context, seconds + more, other, True, COST)
    assert (longer.discard, longer.swap) == (shorter.discard, shorter.swap)
    assert not (least(shorter) != "preserve" and least(longer) == "preserve")


@given(pauses=any_pauses(), view=ANY_STEP, needed=st.integers(1, 100), forced=st.booleans())
def test_victims_are_those_of_the_other_baselines(
    pauses: list[PausedKVView], view: StepView, needed: int, forced: bool
) -> None:
    expected = make_handling("infercept").victims(pauses, view, needed, forced)
    assert make_handling("lamps").victims(pauses, view, needed, forced) == expected


def test_who_has_returned_or_holds_nothing_is_left_alone() -> None:
    pauses = [
        paused("gone", 0, durations=known(1e3)),
        paused("back", returned=True, durations=known(1e3)),
        paused("away", durations=known(1e3)),
    ]
    assert actions(pauses, step()) == {"away": "swap"}
