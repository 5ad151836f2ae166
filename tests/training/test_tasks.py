"""The generated conversations are consistent: every call, result and answer agrees."""

import json
import random
import re

import pytest
from heldout import distinct, prompts, scenarios
from tasks import arithmetic
from tasks.conversation import TASKS, Conversation, conversation
from tasks.exchange import NO_TOOL, Call, contains
from tasks.plain import sums
from tasks.words import ZONES, made_up

from caesura.tools.calculator.tool import evaluate


@pytest.fixture(scope="module")
def talks() -> list[Conversation]:
    rng = random.Random("tests")
    return [conversation(rng) for _ in range(600)]


def calls_of(talks: list[Conversation]) -> list[Call]:
    return [call for talk in talks for said in talk.exchanges for call in said.calls]


def test_every_calculator_result_is_right(talks):
    checked = 0
    for call in calls_of(talks):
        if call.name != "calculator" or call.result.startswith("error"):
            continue
        expression = call.arguments["expression"]
        value = eval(expression, {"__builtins__": {}})
        assert float(call.result) == pytest.approx(value, rel=1e-9, abs=0.0051)
        assert call.result == str(value) or isinstance(value, float)
        checked += 1
    assert checked > 200


def test_the_calculator_tool_agrees_with_what_the_model_learned(talks):
    for call in calls_of(talks):
        if call.name != "calculator" or call.result.startswith("error"):
            continue
        value = evaluate(call.arguments["expression"])
        assert float(value) == pytest.approx(float(call.result), rel=1e-9, abs=0.0051)


def test_only_listed_tools_are_called(talks):
    for talk in talks:
        listed = {tool["function"]["name"] for tool in talk.tools}
        assert len(listed) == len(talk.tools)
        for said in talk.exchanges:
            assert {call.name for call in said.calls} <= listed


def test_a_question_is_refused_only_where_a_tool_is_missing(talks):
    refused = [(t, s) for t in talks for s in t.exchanges if s.answer == (NO_TOOL,)]
    assert refused
    for talk, said in refused:
        assert said.task == "missing"
        assert not said.tools <= {tool["function"]["name"] for tool in talk.tools}


def test_answers_contain_their_values_and_arguments_are_json(talks):
    for talk in talks:
        for said in talk.exchanges:
            text = "".join(piece for piece in said.answer if isinstance(piece, str))
            assert all(contains(text, value) for value in said.values), said
            for call in said.calls:
                assert json.loads(json.dumps(call.arguments)) == call.arguments


def test_every_argument_is_copied_from_what_was_said(talks):
    """Nothing has to be invented: digits of an expression stand in the talk before it."""
    constants = {"0", "2", "3", "4", "5", "7", "10", "12", "24", "60", "100", "1000", "3600"}
    for talk in talks:
        seen = ""
        for said in talk.exchanges:
            seen += " " + said.user
            for step in said.steps:
                for call in step:
                    if call.name == "calculator":
                        numbers = set(re.findall(r"\d+", call.arguments["expression"]))
                        assert numbers - constants <= set(re.findall(r"\d+", seen)), said
                seen += "".join(f" {call.result}" for call in step)
            seen += "".join(f" {call.result}" for call in said.calls)


def test_every_task_occurs_and_can_be_asked_for(talks):
    assert {said.task for talk in talks for said in talk.exchanges} == set(TASKS)
    chosen = scenarios(3)
    assert all(s.asked.task == task for task, group in chosen.items() for s in group)


def test_the_same_seed_gives_the_same_conversations():
    first, second = (conversation(random.Random("same")) for _ in range(2))
    assert first == second
    assert prompts(5) == prompts(5)


def test_only_questions_with_a_number_or_a_name_can_be_held_out():
    assert distinct("What is 2+2?")
    assert distinct("What time is it in Paris?")
    assert not distinct("What time is it?")


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("12*7", "84"), ("10/4", "2.5"), ("10/5", "2"), ("2**10", "1024"), ("17%5", "2"),
        ("2*(3+4)", "14"), ("0.1+0.2", "0.3"), ("1/0", "error: division by zero"), ("-3+1", "-2"),
    ],
)  # fmt: skip
def test_calculate(expression, result):
    assert arithmetic.calculate(expression) == result


def test_calculate_refuses_what_is_no_arithmetic():
    assert arithmetic.calculate("__import__('os')").startswith("error:")
    assert arithmetic.calculate("1+").startswith("error:")


def test_a_follow_up_goes_on_with_the_number_before_it():
    rng = random.Random(1)
    followed = 0
    for _ in range(50):
        before = sums.direct(rng)
        if after := sums.follow_up(rng, before):
            assert after.calls[0].arguments["expression"].startswith(before.calls[0].result)
            followed += 1
    assert followed > 20


def test_zones_are_known_to_the_system():
    zoneinfo = pytest.importorskip("zoneinfo")
    for zone in ZONES.values():
        assert zoneinfo.ZoneInfo(zone).key == zone


def test_made_up_words_are_lower_case_letters():
    rng = random.Random(2)
    words = {made_up(rng) for _ in range(200)}
    assert len(words) > 190
    assert all(re.fullmatch("[a-z]+", word) for word in words)
