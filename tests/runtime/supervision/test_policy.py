"""Back-off and crash loops, on made-up times."""

import pytest

from caesura.runtime.supervision import RestartPolicy, RestartRules

RULES = RestartRules(first_seconds=1.0, ceiling_seconds=5.0, most_deaths=7, window_seconds=100.0)


def test_a_single_death_is_answered_at_once():
    assert RestartPolicy(RULES).died(1e9) == 0.0


def test_the_pause_doubles_up_to_the_ceiling():
    policy = RestartPolicy(RULES)
    assert [policy.died(float(second)) for second in range(6)] == [0.0, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_too_many_deaths_within_the_window_are_a_crash_loop():
    policy = RestartPolicy(RULES)
    assert None not in [policy.died(float(second)) for second in range(6)]
    assert policy.died(99.0) is None
    assert policy.why_given_up == "it died 7 times within 100 s"


def test_deaths_before_the_window_do_not_count():
    policy = RestartPolicy(RULES)
    for second in range(6):
        policy.died(float(second))
    assert policy.died(104.5) == 1.0  # with the one of second 5
    assert policy.died(300.0) == 0.0


def test_a_death_each_window_goes_on_for_ever():
    policy = RestartPolicy(RULES)
    assert {policy.died(100.0 * turn) for turn in range(1000)} == {0.0}


def test_many_deaths_that_are_allowed_do_not_overflow():
    policy = RestartPolicy(RestartRules(most_deaths=10_000, window_seconds=1e9))
    assert {policy.died(1.0) for _ in range(5_000)} <= {0.0, *(2.0**n for n in range(5)), 30.0}


@pytest.mark.parametrize("name", ["first_seconds", "ceiling_seconds", "most_deaths"])
def test_rules_that_make_no_sense_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be positive, got 0"):
        RestartRules(**{name: 0})
