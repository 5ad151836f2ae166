"""The default ranking: its index against a direct reading of its definition, and by hand."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.policy.caesura import remaining_work
from caesura.scheduler.policy.ranking import Queued, QueueView

from .queues import ANY_VIEW, COST, any_queued, queued, score, view


def index_by_definition(
    one: Queued, seen: QueueView, most_calls: int = 80, restore_weight: float = 0.3
) -> float:
    """K as it is defined, step by step, with nothing taken out of the loop."""
    f, m, t_it = one.forecast, seen.capacity_tokens, seen.step_seconds
    cpf = seen.cost.prefill_seconds_per_token
    c, d = one.context_tokens, f.decode_tokens
    miss = (c - one.resident_tokens - one.hosted_tokens) + restore_weight * one.hosted_tokens
    w = d * t_it * (c + d / 2) / m + miss * cpf
    c += d
    alive, fin, best = 1.0, 0.0, inf
    for k in range(most_calls + 1):
        if k > 0:
            w += alive * (
                f.segment_tokens * t_it * (c + f.segment_tokens / 2) / m + f.result_tokens * cpf
            )
            c += f.segment_tokens
        q = f.ends[k] if k < len(f.ends) else 1.0
        fin += alive * q
        alive *= 1 - q
        worth = fin + alive * f.pause_discount
        if worth > 0:
            best = min(best, w / worth)
        w += alive * min(f.pause_seconds, 0.5 * cpf * m) * c / m
        c += f.result_tokens
        if alive < 1e-3:
            break
    return best


@settings(max_examples=300)
@given(any_queued(), ANY_VIEW, st.integers(0, 90), st.floats(0, 1))
def test_the_index_is_what_its_definition_says(
    one: Queued, seen: QueueView, most_calls: int, weight: float
) -> None:
    slow = index_by_definition(one, seen, most_calls, weight)
    assume(slow < inf and one.forecast.pause_discount > 1e-6)
    assert remaining_work(one, seen, most_calls, weight) == pytest.approx(slow, rel=1e-9)


def test_the_index_by_hand() -> None:
    cost = CostModel(0.0, 1.0, 1.0, 0.0, 1)
    seen = view(capacity_tokens=100, step_seconds=2.0, cost=cost)
    one = queued(
        context_tokens=20,
        resident_tokens=10,
        hosted_tokens=10,
        decode_tokens=10.0,
        segment_tokens=4.0,
        result_tokens=6.0,
        pause_seconds=5.0,
        pause_discount=0.0,
        ends=(0.5, 1.0),
    )
    first = 10 * 2 * 25 / 100 + 0.3 * 10  # decoding, and loading at 0.3 of recomputing
    pause = 0.5 * 5 * 30 / 100
    second = 0.5 * (6 * 1 + 4 * 2 * (36 + 2) / 100)
    assert remaining_work(one, seen) == pytest.approx(min(first / 0.5, first + pause + second))
    assert remaining_work(one, seen) == pytest.approx(first + pause + second)
    away = replace(one, forecast=replace(one.forecast, pause_discount=0.9))
    assert remaining_work(away, seen) == pytest.approx(first / 0.95)
    done = replace(one, forecast=replace(one.forecast, ends=()))
    assert remaining_work(done, seen) == pytest.approx(first)
    assert score("caesura:beta=100,most_delay=1e6", done, seen) == (
        pytest.approx(10 + 100 * first),
    )
    assert score("caesura:beta=100,restore_weight=0,most_delay=1e6", done, seen) == (
        pytest.approx(10 + 100 * 5),
    )


def test_a_long_pause_holds_nothing() -> None:
    # Half of the memory is recomputed in 1.48 s: whatever is away for longer gives its memory up.
    assert 0.5 * COST.prefill_seconds_per_token * 50_000 == pytest.approx(1.4766, abs=1e-4)

    def work(seconds: float) -> float:
        once_more = queued(pause_seconds=seconds, pause_discount=0.0, ends=(0.0, 1.0))
        return remaining_work(once_more, view())

    assert work(1.4) == pytest.approx(work(0.4) + 1.0 * 1030 / 50_000)
    assert work(1.4) < work(1.5) == work(9.0)


def test_a_session_that_seems_never_to_end_still_has_a_place() -> None:
    endless = queued(pause_discount=0.0, ends=(0.0,) * 200)
    assert 0 < remaining_work(endless, view()) < inf
    longer = replace(endless, forecast=replace(endless.forecast, segment_tokens=80.0))
    assert remaining_work(endless, view()) < remaining_work(longer, view())


@given(any_queued(), ANY_VIEW)
def test_beta_is_between_the_line_and_the_index(one: Queued, seen: QueueView) -> None:
    assert score("caesura:beta=0", one, seen) == score("fcfs", one, seen)
    work = remaining_work(one, seen)
    delay = min(7 * work, 3.0)
    found = score("caesura:beta=7,most_delay=3", one, seen)
    assert found == (pytest.approx(one.arrival + delay),)


@given(any_queued(), ANY_VIEW, st.floats(0.1, 1e3))
def test_no_session_goes_behind_one_that_came_much_later(
    one: Queued, seen: QueueView, later: float
) -> None:
    light = queued(arrival=one.arrival + 10 + later, context_tokens=1, ends=(1.0,))
    assert score("caesura:beta=1e6", one, seen) < score("caesura:beta=1e6", light, seen)


@given(any_queued(), ANY_VIEW, st.integers(1, 5000))
def test_a_larger_context_and_more_that_is_missing_have_more_left(
    one: Queued, seen: QueueView, more: int
) -> None:
    larger = replace(
        one, context_tokens=one.context_tokens + more, resident_tokens=one.resident_tokens + more
    )
    assert remaining_work(one, seen) <= remaining_work(larger, seen)
    lost = replace(one, resident_tokens=0)
    copied = replace(lost, hosted_tokens=one.hosted_tokens + one.resident_tokens)
    assert remaining_work(one, seen) <= remaining_work(copied, seen) <= remaining_work(lost, seen)


@given(any_queued(), ANY_VIEW, st.floats(0, 1), st.sampled_from(["segment", "result", "pause"]))
def test_whatever_makes_a_session_longer_never_brings_it_forward(
    one: Queued, seen: QueueView, more: float, what: str
) -> None:
    name = {"segment": "segment_tokens", "result": "result_tokens", "pause": "pause_seconds"}[what]
    longer = replace(one.forecast, **{name: getattr(one.forecast, name) * (1 + more)})
    work = remaining_work(one, seen)
    assert work <= remaining_work(replace(one, forecast=longer), seen) * (1 + 1e-12)


@given(any_queued(), ANY_VIEW)
def test_a_pause_that_is_worth_more_leaves_less(one: Queued, seen: QueueView) -> None:
    work = [
        remaining_work(replace(one, forecast=replace(one.forecast, pause_discount=rho)), seen)
        for rho in (0.001, 0.01, 0.1, 0.9)
    ]
    assert work == sorted(work, reverse=True)
    now = replace(one, forecast=replace(one.forecast, ends=(1.0,)))
    assert remaining_work(now, seen) <= min(work)


@given(any_queued(), ANY_VIEW, st.sampled_from([2.0, 4.0, 0.5]))
def test_the_index_scales_with_the_engines_pace(one: Queued, seen: QueueView, pace: float) -> None:
    """An engine that is twice as slow in everything, with pauses twice as long, has twice K."""
    cost = replace(COST, base=COST.base * pace, per_token=COST.per_token * pace)
    slower = replace(seen, step_seconds=seen.step_seconds * pace, cost=cost)
    longer = replace(one.forecast, pause_seconds=one.forecast.pause_seconds * pace)
    assert remaining_work(replace(one, forecast=longer), slower) == pytest.approx(
        pace * remaining_work(one, seen)
    )


@given(any_queued(), ANY_VIEW, st.integers(0, 60))
def test_following_further_matters_only_while_somebody_is_left(
    one: Queued, seen: QueueView, calls: int
) -> None:
    ends = (*one.forecast.ends[:calls], 1.0)
    sure = replace(one, forecast=replace(one.forecast, ends=ends))
    assert remaining_work(sure, seen, calls) == remaining_work(sure, seen, 100)


def test_of_two_sessions_the_one_about_to_end_goes_first() -> None:
    ends, goes_on = queued(ends=(0.9, 1.0)), queued(ends=(0.05,) * 30)
    assert score("caesura", replace(ends, arrival=goes_on.arrival + 0.1)) < score(
        "caesura", goes_on
    )
