"""Hints about pauses: what they are learned under, and their way over the wire."""

from typing import Any

import pytest

from caesura.intercept.calls.watch import WatchPlan
from caesura.intercept.pause_hints import PauseHint, hints_from_wire, slowest

PERSON = PauseHint(60.0, 3600.0, person=True)


def test_waits_for_people_are_learned_under_a_name_of_their_own() -> None:
    assert PERSON.key("calculator") == "person:calculator"
    assert PauseHint(2.0).key("calculator") == "calculator"


def test_plans_carry_hints_over_the_wire() -> None:
    plan = WatchPlan(("hermes",), ("a", "b"), pauses={"a": PERSON, "b": PauseHint(0.5)})
    again = WatchPlan.from_wire(plan.to_wire())
    assert again == plan
    assert again.pauses["a"] == PERSON


def test_a_plan_without_hints_is_written_as_it_always_was() -> None:
    wire = WatchPlan(("hermes",), ("a",)).to_wire()
    assert wire == {"formats": ["hermes"], "tools": ["a"], "stop": [], "turn": "fresh"}
    assert WatchPlan.from_wire(wire).pauses == {}


@pytest.mark.parametrize(
    "pauses",
    [[], {1: [1, None, True]}, {"a": 1}, {"a": [0, None, True]}, {"a": [1, -1, True]}, {"a": [1]}],
)
def test_bad_hints_are_refused(pauses: Any) -> None:
    with pytest.raises(ValueError, match="pause"):
        WatchPlan.from_wire({"formats": [], "pauses": pauses})


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_hint_is_positive_and_finite(seconds: float) -> None:
    with pytest.raises(ValueError):
        PauseHint(seconds)
    with pytest.raises(ValueError):
        PauseHint(1.0, seconds)


def test_of_several_tools_the_slowest_person_counts() -> None:
    hints = {"ask": PERSON, "sign": PauseHint(600.0, None, True), "train": PauseHint(9000.0)}
    assert slowest({"ask", "sign", "train", "calc"}, hints) == "sign"
    assert slowest({"train", "calc"}, hints) is None


@pytest.mark.parametrize("hint", [[["a"] * 1000], ["b" * 3000, None, False], [-(10.0**300)]])
def test_the_error_of_a_wrong_hint_is_short(hint: object) -> None:
    with pytest.raises(ValueError) as raised:
        hints_from_wire({"calc": hint})
    assert len(str(raised.value)) < 250
