"""What each rule of a step is for, by its numbers."""

import pytest

from caesura.scheduler.policy.admission import StepRules
from caesura.scheduler.settings import Settings


def test_a_step_passes_over_few_misfits_and_none_that_is_overdue() -> None:
    rules = StepRules(max_misfits=2)
    assert rules.look_further(misfits=2, overdue=False)
    assert not rules.look_further(misfits=3, overdue=False), "vLLM stops at the first"
    assert not rules.look_further(misfits=1, overdue=True), "it would starve"


def test_a_request_is_overdue_after_many_steps_or_many_seconds() -> None:
    rules = StepRules(max_overtaken_steps=10, max_overtaken_seconds=5.0)
    assert not rules.is_overdue(9, 4.9)
    assert rules.is_overdue(10, 0.1), "steps are short"
    assert rules.is_overdue(1, 5.0), "steps are long"
    assert not rules.is_overdue(0, 1e9), "no request went before it"


def test_without_back_filling_the_first_misfit_ends_the_step() -> None:
    assert not StepRules(backfill=False).look_further(misfits=1, overdue=False)


def test_a_misfit_is_asked_again_now_and_then() -> None:
    rules = StepRules(misfit_steps=4)
    assert rules.misfit_holds(3)
    assert not rules.misfit_holds(4)


def test_a_convoy_ends_with_the_one_that_lacks_few_blocks() -> None:
    rules = StepRules(max_convoy_blocks=8)
    assert rules.takes_from_returned(8, came_back=True, forced=False)
    assert not rules.takes_from_returned(9, came_back=True, forced=False), "it would lose as much"
    assert not rules.takes_from_returned(1, came_back=False, forced=False), "new ones wait"
    assert rules.takes_from_returned(100, came_back=False, forced=True), "nothing else will run"


def test_the_settings_say_the_rules() -> None:
    assert Settings().step_rules == StepRules()
    given = Settings(backfill=False, max_overtaken_steps=7, max_convoy_blocks=0).step_rules
    assert (given.backfill, given.max_overtaken_steps, given.max_convoy_blocks) == (False, 7, 0)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("max_misfits", -1, "max_misfits must be a whole number of at least 0, got -1"),
        ("max_overtaken_steps", 0, "max_overtaken_steps must be a whole number of at least 1"),
        (
            "max_overtaken_seconds",
            0,
            "max_overtaken_seconds must be a number of seconds > 0, got 0",
        ),
        ("chunk_saturations", 1.5, "chunk_saturations must be a whole number of at least 1"),
        ("max_copy_failures", True, "max_copy_failures must be a whole number"),
        ("write_behind_free_share", 40, "must be a share from 0 to 1, got 40"),
        ("min_link_share", -0.1, "must be a number >= 0, as a share .* got -0.1"),
    ],
)
def test_limits_that_are_none_are_refused(name: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.from_mapping({name: value})
