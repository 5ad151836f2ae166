"""What each handling decides, and whose blocks it takes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.kv.handling import (
    DEFAULT_HANDLING,
    HANDLINGS,
    MAX_MEANS,
    MAX_TURNOVERS,
    best_times,
    make_handling,
    recompute_turnover_seconds,
)
from caesura.intercept.kv.pause_durations import Durations
from caesura.intercept.kv.step_budget import turnover_seconds
from caesura.intercept.kv.views import PausedKVView, StepView

from .views import ANY_STEP, any_pauses, known, paused, step

NAMES = pytest.mark.parametrize("name", HANDLINGS)
SHORT = turnover_seconds(step())
RECOMPUTE = recompute_turnover_seconds(step())


def test_by_name() -> None:
    assert {make_handling(name).name for name in HANDLINGS} == set(HANDLINGS)
    assert DEFAULT_HANDLING in HANDLINGS
    with pytest.raises(ValueError, match="caesura, infercept, lamps, ttl, preserve, discard, swap"):
        make_handling("forget")


@NAMES
@settings(max_examples=60)
@given(pauses=any_pauses(), view=ANY_STEP, needed=st.integers(0, 300), forced=st.booleans())
def test_victims_are_resident_and_enough(
    name: str, pauses: list[PausedKVView], view: StepView, needed: int, forced: bool
) -> None:
    victims = make_handling(name).victims(pauses, view, needed, forced)
    resident = {one.key: one.resident for one in pauses}
    keys = [key for key, _ in victims]
    assert len(keys) == len(set(keys))
    assert all(0 < blocks <= resident[key] for key, blocks in victims)
    freed = sum(blocks for _, blocks in victims)
    if forced:
        assert freed == min(needed, sum(resident.values()))
    else:
        assert freed in (0, needed)
        assert not {one.key for one in pauses if one.returned} & set(keys)


@NAMES
@settings(max_examples=60)
@given(pauses=any_pauses(), view=ANY_STEP)
def test_decisions_are_the_same_for_the_same_view(
    name: str, pauses: list[PausedKVView], view: StepView
) -> None:
    decisions = make_handling(name).decide(pauses, view)
    assert decisions == make_handling(name).decide(pauses, view)
    keys = [decision.key for decision in decisions]
    waiting = {one.key for one in pauses if one.resident and not one.returned}
    assert len(keys) == len(set(keys)) and set(keys) <= waiting
    assert all(view.swap_pays for decision in decisions if decision.action == "swap")
    assert make_handling(name).every_step or not decisions


@NAMES
def test_who_has_returned_gives_last_and_the_last_in_the_queue_first(name: str) -> None:
    pauses = [
        paused("first", returned=True, remaining=0.0, elapsed=99.0),
        paused("second", returned=True, remaining=0.0, elapsed=99.0),
        paused("away", remaining=0.1),
    ]
    victims = make_handling(name).victims(pauses, step(), 110, forced=True)
    assert victims == [("away", 50), ("second", 50), ("first", 10)]


@pytest.mark.parametrize("name", ["infercept", "lamps"])
def test_what_was_preserved_is_not_taken_to_admit_somebody(name: str) -> None:
    pauses = [
        paused("young", elapsed=1.0, uncopied=0, free_to_release=30),
        paused("old", blocks=10, elapsed=9.0),
    ]
    handling = make_handling(name)
    assert handling.victims(pauses, step(), 20, forced=False) == [("young", 20)]
    assert handling.victims(pauses, step(), 31, forced=False) == []
    assert handling.victims(pauses, step(), 20, forced=True) == [("old", 10), ("young", 10)]


@pytest.mark.parametrize("name", ["preserve", "discard", "swap", "ttl"])
def test_the_others_take_from_the_oldest_and_largest(name: str) -> None:
    pauses = [
        paused("young", elapsed=1.0),
        paused("old", blocks=10, elapsed=9.0),
        paused("none", 0),
    ]
    for forced in (True, False):
        assert make_handling(name).victims(pauses, step(), 20, forced) == [
            ("old", 10),
            ("young", 10),
        ]


def actions(name: str, pauses: list[PausedKVView], view: StepView) -> dict[str, str]:
    return {one.key: one.action for one in make_handling(name).decide(pauses, view)}


@pytest.mark.parametrize("name", ["discard", "swap"])
def test_one_answer_to_every_pause(name: str) -> None:
    pauses = [paused("a"), paused("b"), paused("gone", 0), paused("back", returned=True)]
    assert actions(name, pauses, step()) == {"a": name, "b": name}
    assert actions("swap", pauses, step(swap_pays=False)) == {}


# -- infercept ------------------------------------------------------------------------------------


def test_a_long_pause_of_a_large_context_is_not_preserved() -> None:
    long = paused("long", blocks=500, remaining=120.0)
    assert actions("infercept", [long], step()) == {"long": "swap"}
    assert actions("infercept", [long], step(swap_pays=False)) == {"long": "discard"}
    assert actions("infercept", [long], step(link_blocks=0)) == {"long": "discard"}
    assert actions("infercept", [long], step(host_free=0)) == {"long": "discard"}


def test_a_calculator_is_preserved() -> None:
    quick = paused("quick", blocks=500, remaining=0.001, elapsed=0.001)
    assert actions("infercept", [quick], step()) == {}
    copied = paused("copied", blocks=500, copied=500, remaining=0.001, elapsed=0.001)
    assert actions("infercept", [copied], step()) == {}


def test_an_unknown_tool_counts_by_the_time_that_has_passed() -> None:
    unknown = paused("a", blocks=500, durations=Durations(100.0), remaining=100.0, elapsed=0.0)
    assert actions("infercept", [unknown], step()) == {}
    assert actions("infercept", [replace(unknown, elapsed=0.01)], step()) == {}
    assert actions("infercept", [replace(unknown, elapsed=60.0)], step()) == {"a": "swap"}


def test_the_link_goes_to_those_that_waste_most() -> None:
    pauses = [
        paused("small", blocks=30, remaining=60.0),
        paused("large", blocks=55, remaining=60.0),
    ]
    both = make_handling("infercept").decide(pauses, step(link_blocks=60))
    assert [(one.key, one.action) for one in both] == [("large", "swap"), ("small", "swap")]
    assert actions("infercept", pauses, step(link_blocks=55)) == {
        "large": "swap",
        "small": "discard",
    }


# -- ttl ------------------------------------------------------------------------------------------


def values_by_force(durations: Durations, ratio: float) -> dict[float, float]:
    def value(tau: float) -> float:
        held = [min(seconds, tau) for seconds in durations.sample]
        grid = [tau * (i + 0.5) / 4000 for i in range(4000)]
        tail = Durations(durations.tail_mean)
        held_unseen = sum(tail.survival(t) for t in grid) * tau / 4000
        whole = durations.count + durations.prior_weight
        mean_held = (sum(held) + durations.prior_weight * held_unseen) / whole
        return (1 - durations.survival(tau)) * ratio - mean_held

    beyond = max((MAX_MEANS * durations.tail_mean, *durations.sample))
    return {tau: value(tau) for tau in (0.0, *durations.sample, beyond)}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0.01, 50), max_size=6), st.floats(0.01, 50), st.floats(0.001, 100))
def test_the_time_to_live_is_worth_most(recent: list[float], prior: float, ratio: float) -> None:
    durations = Durations(prior, recent=tuple(recent))
    values, tau = values_by_force(durations, ratio), best_times(durations).at(ratio)
    # At a tie the integration by hand may fall to either side.
    assert values[tau] >= max(values.values()) - 0.01 * ratio


def test_a_tool_of_two_kinds_is_kept_for_the_shorter() -> None:
    durations = Durations(1.0, 0.01, recent=(0.5,) * 15 + (100.0,) * 5)
    assert best_times(durations).at(2.0) == 0.5
    assert best_times(durations).at(0.01) == 0.0
    assert best_times(durations).at(1000.0) >= 100.0


def test_kept_until_its_time_is_over() -> None:
    durations = known(1.0, times=100)
    young = paused("a", blocks=500, durations=durations, elapsed=0.9, remaining=0.1)
    view = step(running_context=200_000)
    assert actions("ttl", [young], view) == {}
    assert actions("ttl", [replace(young, elapsed=60.0)], view) == {"a": "discard"}


# -- caesura --------------------------------------------------------------------------------------


def take(
    pauses: list[PausedKVView], needed: int, forced: bool, view: StepView
) -> list[tuple[str, int]]:
    return make_handling("caesura").victims(pauses, view, needed, forced)


def test_nothing_happens_at_a_call() -> None:
    caesura = make_handling("caesura")
    assert caesura.write_behind and not caesura.every_step
    assert caesura.decide([paused(remaining=1e6)], step()) == []


def test_the_longest_copied_pause_gives_its_tail_first() -> None:
    pauses = [
        paused("middle", copied=30, remaining=5.0),
        paused("long", copied=30, remaining=15.0),
    ]
    assert take(pauses, 10, False, step()) == [("long", 10)]
    assert take(pauses, 40, False, step()) == [("long", 30), ("middle", 10)]
    assert take(pauses, 61, False, step()) == []  # all or nothing


def test_to_admit_a_request_short_pauses_are_spared() -> None:
    short = paused("short", copied=50, remaining=0.9 * SHORT)
    assert take([short], 10, False, step()) == []
    assert take([short], 10, True, step()) == [("short", 10)]


def test_without_need_nothing_is_recomputed() -> None:
    one = paused("a", remaining=0.5 * MAX_TURNOVERS * RECOMPUTE)
    assert one.remaining > RECOMPUTE
    assert take([one], 10, False, step()) == []
    assert take([replace(one, remaining=2 * MAX_TURNOVERS * RECOMPUTE)], 10, False, step()) == [
        ("a", 10)
    ]


@pytest.mark.parametrize("change", [{"host_free": 0}, {"swap_pays": False}])
def test_where_no_copy_comes_recomputing_pays_sooner(change: dict[str, object]) -> None:
    one = paused("a", remaining=1.1 * RECOMPUTE)
    assert take([one], 10, False, step(**change)) == [("a", 10)]
    assert take([replace(one, remaining=0.9 * RECOMPUTE)], 10, False, step(**change)) == []


def test_where_copies_are_late_recomputing_pays_sooner() -> None:
    slow = replace(step().cost, out_rate=500.0)  # 50 blocks take 1.6 s
    one = paused("a", remaining=1.1 * RECOMPUTE)
    assert take([one], 10, False, step(cost=slow)) == [("a", 10)]
    assert take([one], 10, False, step()) == []


def test_by_force_in_the_order_of_regret() -> None:
    pauses = [
        paused("back", blocks=8, copied=8, returned=True, remaining=0.0),
        paused("soon", blocks=8, remaining=0.5),
        paused("later", blocks=8, remaining=2.0),
        paused("half", blocks=8, copied=4, remaining=1.0),
        paused("short", blocks=8, copied=8, remaining=0.5 * SHORT),
    ]
    assert take(pauses, 40, True, step()) == [
        ("half", 8),
        ("short", 8),
        ("later", 8),
        ("soon", 8),
        ("back", 8),
    ]
    assert take(pauses, 12, True, step()) == [("half", 4), ("short", 8)]
    assert take(pauses, 14, True, step()) == [("half", 4), ("short", 8), ("later", 2)]


def test_what_is_on_its_way_to_the_host_is_taken_before_what_is_not() -> None:
    pauses = [
        paused("bare", blocks=8, remaining=1.0),
        paused("copying", blocks=8, uncopied=1, remaining=1.0),
    ]
    assert take(pauses, 4, True, step()) == [("copying", 4)]


@settings(max_examples=60)
@given(pauses=any_pauses(), view=ANY_STEP, needed=st.integers(1, 300))
def test_force_takes_first_what_it_would_take_anyway(
    pauses: list[PausedKVView], view: StepView, needed: int
) -> None:
    gently = take(pauses, needed, False, view)
    if gently:
        assert take(pauses, needed, True, view) == gently
