"""What is known of a tool's pauses, against the same thing counted out."""

import json
from math import exp, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.pause_durations import OVERDUE, SAMPLE_SIZE, Durations

SECONDS = st.floats(0, 1e4)
DURATIONS = st.builds(
    Durations,
    st.floats(1e-4, 1e3),
    st.floats(0.1, 10),
    st.lists(SECONDS, max_size=30).map(tuple),
)


def test_nothing_seen_is_the_prior() -> None:
    unseen = Durations(5.0)
    assert (unseen.mean, unseen.count) == (5.0, 0)
    assert unseen.mean_residual(0.0) == unseen.mean_residual(100.0) == 5.0
    assert unseen.survival(5.0) == pytest.approx(exp(-1))


def test_the_prior_vanishes() -> None:
    durations = Durations(60.0)
    means = []
    for _ in range(20):
        durations = durations.observe(1.0)
        means.append(durations.mean)
    assert means == sorted(means, reverse=True)
    assert means[3] < 4.0
    assert means[-1] < 1.2


def test_observing_leaves_the_old_record_as_it_was() -> None:
    before = Durations(1.0, recent=(3.0, 2.0))
    after = before.observe(1.0)
    assert before == Durations(1.0, recent=(3.0, 2.0))
    assert after.recent == (3.0, 2.0, 1.0)
    assert after.sample == (1.0, 2.0, 3.0)


def test_recent_behaviour_counts() -> None:
    durations = Durations(1.0)
    for _ in range(SAMPLE_SIZE):
        durations = durations.observe(1.0)
    for _ in range(SAMPLE_SIZE):
        durations = durations.observe(9.0)
        assert durations.count == SAMPLE_SIZE
    assert set(durations.sample) == {9.0}


def test_a_long_pause_of_a_bimodal_tool_is_one_of_its_long_ones() -> None:
    durations = Durations(1.0, recent=(1.0,) * 10 + (101.0,) * 10)
    assert durations.mean_residual(0.0) == pytest.approx(durations.mean)
    assert durations.mean_residual(2.0) == pytest.approx(99.0, rel=0.05)


def test_an_overdue_tool_is_not_about_to_return() -> None:
    quick = Durations(0.001, recent=(0.001,) * 50)
    assert quick.remaining(0.0) == pytest.approx(0.001, rel=0.1)
    assert quick.remaining(100.0) == OVERDUE * 100.0


@given(DURATIONS, st.floats(0, 2e4))
def test_mean_residual_counted_out(durations: Durations, elapsed: float) -> None:
    longer = [seconds - elapsed for seconds in durations.recent if seconds > elapsed]
    weight = durations.prior_weight * exp(-elapsed / durations.tail_mean)
    expected = durations.tail_mean
    if longer:
        expected = (sum(longer) + weight * durations.tail_mean) / (len(longer) + weight)
    assert durations.mean_residual(elapsed) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert durations.remaining(elapsed) >= OVERDUE * elapsed


@given(DURATIONS, st.lists(st.floats(0, 1e5), min_size=2, max_size=5))
def test_survival_falls_from_at_most_one(durations: Durations, times: list[float]) -> None:
    chances = [durations.survival(seconds) for seconds in sorted(times)]
    assert chances == sorted(chances, reverse=True)
    assert all(0 <= chance <= 1 + 1e-12 for chance in chances)


@given(DURATIONS)
def test_over_the_wire_and_back(durations: Durations) -> None:
    assert Durations.from_wire(json.loads(json.dumps(durations.to_wire()))) == durations


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"prior_seconds": 1, "prior_weight": 1},
        {"prior_seconds": 0, "prior_weight": 1, "recent": []},
        {"prior_seconds": 1, "prior_weight": -1, "recent": []},
        {"prior_seconds": 1, "prior_weight": 1, "recent": [nan]},
        {"prior_seconds": 1, "prior_weight": 1, "recent": [-1]},
        {"prior_seconds": 1, "prior_weight": 1, "recent": [inf]},
        {"prior_seconds": 1, "prior_weight": 1, "recent": ["soon"]},
        {"prior_seconds": 1, "prior_weight": 1, "recent": 3},
        {"prior_seconds": 1, "prior_weight": 1, "recent": [1] * 129},
        ["prior_seconds"],
        None,
    ],
)
def test_a_broken_record_is_refused(wire: object) -> None:
    with pytest.raises(ValueError):
        Durations.from_wire(wire)  # type: ignore[arg-type]


def test_a_clock_that_was_set_back() -> None:
    assert Durations(1.0).observe(-3.0).recent == (0.0,)
    with pytest.raises(ValueError, match="nan"):
        Durations(1.0).observe(nan)
