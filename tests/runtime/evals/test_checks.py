"""What checks say of answers, and of mistakes in themselves."""

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from caesura import Agent, Prices, ScriptedEngine, UsageError
from caesura.evals import (
    Calls,
    Case,
    Check,
    Contains,
    Equals,
    Given,
    Judge,
    Judgement,
    Matches,
    Valid,
    Verdict,
    Within,
)
from caesura.runtime.testing import call, calls, say


class Offer(BaseModel):
    item: str
    euros: int


@dataclass
class Point:
    x: int
    y: int


def price(item: str) -> int:
    """Look up what an item costs."""
    return {"lamp": 24, "chair": 59}[item]


def add(first: int, second: int) -> int:
    """Add."""
    return first + second


async def said(
    check: Check, answer: Any, expected: Any = None, seconds: float | None = None
) -> Any:
    case = Case("How much?", expected, checks=[check])
    [found] = await case.checked(Given(answer, case, seconds))
    return found


@pytest.mark.parametrize(
    ("check", "answer", "passes", "reason"),
    [
        (Equals(), " 168\n", True, ""),
        (Equals(), "170", False, "expected 168, got 170"),
        (Equals({"item": "lamp", "euros": 3}), Offer(item="lamp", euros=3), True, ""),
        (Equals({"x": 1, "y": 2}), Point(1, 2), True, ""),
        (Equals(Point(1, 2)), Point(1, 3), False, "expected Point(x=1, y=2), got Point(x=1, y=3)"),
        (Contains(), "it is 168.", True, ""),
        (Contains("LAMP", "168"), "a lamp is 168", True, ""),
        (Contains("LAMP", exact=True), "a lamp", False, "['LAMP'] missing in 'a lamp'"),
        (Contains("lamp", "chair"), "a lamp", False, "['chair'] missing in 'a lamp'"),
        (Contains("lamp", "chair", any=True), "a lamp", True, ""),
        (Contains("sorry", absent=True), "Sorry.", False, "it has ['sorry']"),
        (Contains("sorry", absent=True), "Yes.", True, ""),
        (Matches(r"\b\d+ euros"), "168 euros", True, ""),
        (Matches(r"^\d+$"), "168 euros", False, "not found in '168 euros'"),
        (Valid(Offer), '{"item": "lamp", "euros": 3}', True, ""),
        (Valid(Offer), '{"item": "lamp", "euros": "many"}', False, "euros: Input should be"),
        (Valid(list[int]), [1, 2], True, ""),
        (Valid({"type": "object", "required": ["item"]}), '{"item": 1}', True, ""),
        (Valid({"type": "object", "required": ["item"]}), "{}", False, "'item' is a required"),
        (Valid({"type": "number"}), "no JSON", False, "Expecting value"),
        (Within(seconds=2), "", True, ""),
        (Within(seconds=0.5, calls=0), "", False, "1 seconds, and 0.5 are allowed"),
    ],
)
async def test_texts_and_types(check: Check, answer: Any, passes: bool, reason: str) -> None:
    found = await said(check, answer, expected=168, seconds=1.0)
    assert found.passed == passes
    assert reason in found.reason
    assert not found.error


@pytest.mark.parametrize(
    ("check", "passes", "reason"),
    [
        (Calls("price"), True, ""),
        (Calls("price", "price"), True, ""),
        (Calls("price", "price", "price"), False, "no call price; made: price("),
        (Calls({"price": {"item": "chair"}}, "add"), True, ""),
        (Calls({"price": {"item": "shelf"}}), False, 'no call price({"item": "shelf"}); made'),
        (Calls("add", "price"), True, ""),
        (Calls("add", "price", ordered=True), False, "no call price"),
        (Calls("price", "add", ordered=True), True, ""),
        (Calls("price", only=True), False, "2 other calls"),
        (Calls("price", "price", {"add": {"second": 59}}, only=True), True, ""),
        (Calls(only=True), False, "3 other calls"),
        (Within(calls=3, turns=3, tokens=10**6), True, ""),
        (Within(calls=2), False, "3 calls, and 2 are allowed"),
        (Within(turns=2), False, "3 turns, and 2 are allowed"),
        (Within(cost=1e-9, prices=Prices(prompt=1, completion=2)), False, "cost, and 1e-09 are"),
    ],
)
async def test_calls_and_what_they_cost(check: Check, passes: bool, reason: str) -> None:
    script: Any = [
        calls(call("price", item="lamp"), call("price", item="chair")),
        call("add", first=24, second=59),
        say("83 euros."),
    ]
    answer = await Agent(ScriptedEngine(script), [price, add]).run("A lamp and a chair?")
    found = await said(check, answer)
    assert (found.passed, found.error) == (passes, False)
    assert reason in found.reason


async def test_functions_are_checks() -> None:
    def short(answer: str) -> bool:
        return len(answer) < 5

    def polite(given: Given) -> Verdict:
        return Verdict("please" in given.text, f"{given.case.name} wants manners")

    async def late(answer: str) -> None:
        assert answer == "168", f"got {answer}"

    def broken(answer: str) -> bool:
        raise KeyError(answer)

    def vague(answer: str) -> Any:
        return "fine"

    assert (await said(short, "168")).passed
    found = await said(polite, "168")
    assert (found.check, found.passed, found.reason) == ("polite", False, "How much? wants manners")
    assert (await said(late, "168")).passed
    assert (await said(late, "170")).reason.startswith("got 170")
    found = await said(broken, "168")
    assert (found.passed, found.error, found.reason) == (False, True, "KeyError: '168'")
    found = await said(vague, "168")
    assert (
        found.error and "a check returns a bool, a Verdict or nothing, got 'fine'" in found.reason
    )


async def test_a_judge_sees_all_and_answers_by_a_type() -> None:
    engine = ScriptedEngine([say('{"reason": "It is rude.", "passed": false}')])
    script: Any = [call("price", item="lamp"), say("24, you fool.")]
    answer = await Agent(ScriptedEngine(script), [price]).run("A lamp?")
    case = Case("A lamp?", "24", checks=[Judge("It is polite.", engine)])
    [found] = await case.checked(Given(answer, case))
    assert (found.check, found.passed) == ("judge: It is polite.", False)
    assert found.reason == "It is rude."
    question = engine.sessions[0].turns[0][-1]["content"]
    for part in ("It is polite.", "A lamp?", "24", 'price {"item": "lamp"}', "24, you fool."):
        assert part in question
    assert engine.sessions[0].samplings[0].temperature == 0


async def test_an_agent_of_ones_own_judges_or_is_refused() -> None:
    script = [say('{"reason": "", "passed": true}')]
    own: Agent[Any] = Agent(ScriptedEngine(script), output=Judgement)
    assert (await said(Judge("Fine?", own), "Yes.")).passed
    found = await said(Judge("Fine?", Agent(ScriptedEngine([say("Fine.")]))), "Yes.")
    assert found.error and "must answer with a Judgement, got 'Fine.'" in found.reason


def test_a_case_asserts_with_all_that_is_wrong() -> None:
    case = Case(
        "How much?", "168", name="lamps", checks=[Equals(), Contains("euros"), Matches("8")]
    )
    with pytest.raises(AssertionError) as raised:
        case.check("170")
    told = str(raised.value)
    assert told.startswith("3 of 3 checks fail for the case 'lamps':")
    assert "\n  equals: expected 168, got 170\n" in told
    assert "prompt: How much?\nanswer: 170" in told
    Case("How much?", "168").check(" 168 ")  # by Equals, where there are no checks
    with pytest.raises(UsageError, match=r"judge: polite is async: write await case.check_async"):
        Case("Hi", checks=[Judge("polite", ScriptedEngine([]))]).check("Hello.")


async def test_a_case_asserts_async() -> None:
    engine = ScriptedEngine([say('{"reason": "No manners.", "passed": false}')])
    with pytest.raises(AssertionError, match="judge: polite: No manners"):
        await Case("Hi", checks=[Judge("polite", engine)]).check_async("Hello.")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Contains(3), "Contains takes texts, got 3"),  # type: ignore[arg-type]
        (lambda: Matches("("), "'(' is no regular expression"),
        (lambda: Valid({"type": "nonsense"}), "is no JSON schema"),
        (lambda: Valid(3), "3 is no type that pydantic takes"),
        (lambda: Calls(), "name calls, or write Calls(only=True) for none"),
        (lambda: Calls({"a": 1}), "a call is a name or {name: {argument: value}}, got {'a': 1}"),
        (lambda: Within(), "Within has no bound"),
        (lambda: Within(seconds=-1), "seconds must be a number from 0, got -1"),
        (lambda: Within(cost=1), "Within(cost=1) needs prices=Prices(prompt="),
        (lambda: Judge(3), "a rubric is a text, got 3"),  # type: ignore[arg-type]
        (lambda: Case("Hi", checks=[Contains]), "is no check: give one such as"),
        (
            lambda: Case("Hi", checks="equals"),  # type: ignore[arg-type]
            "checks is a list, got 'equals'",
        ),
    ],
)
def test_mistakes_are_told_at_once(make: Any, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        make()
    assert said in str(raised.value)
