"""Calls written as lines, as the reader and the runtime see them."""

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from caesura.intercept.calls.events import CallFinished, CallMalformed, Event
from caesura.intercept.calls.react import ReactParser, action_input, observation

from .reading import calls_of, counted_ids, read_turn, text_of

SCHEMAS = {
    "calculator": {"properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    "now": {"properties": {}},
}


def parser() -> ReactParser:
    return ReactParser(SCHEMAS, counted_ids())


def read(*pieces: str, end: bool = True) -> list[Event]:
    return read_turn(parser(), pieces, end)


CALL = "Thought: sums.\nAction: calculator\nAction Input: 12*7\n"


def test_the_reader_sees_the_thought_and_not_the_action() -> None:
    events = read(CALL)
    assert text_of(events) == "Thought: sums.\n"
    assert calls_of(events) == [("calculator", {"expression": "12*7"})]


@given(st.lists(st.integers(0, 60), max_size=12))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    edges = sorted({0, len(CALL), *(c % len(CALL) for c in cuts)})
    events = read(*(CALL[a:b] for a, b in itertools.pairwise(edges)))
    assert text_of(events) == "Thought: sums.\n"
    assert calls_of(events) == [("calculator", {"expression": "12*7"})]


def test_the_turn_goes_on_behind_the_observation() -> None:
    reader = parser()
    events = list(reader.push(CALL))
    assert reader.answer("84") == "Observation: 84\n"
    events += [*reader.push("Action: now\nAction Input: {}\n"), *reader.push("Final Answer: 84")]
    events += reader.end()
    assert text_of(events) == "Thought: sums.\nFinal Answer: 84"
    assert [name for name, _ in calls_of(events)] == ["calculator", "now"]


@pytest.mark.parametrize(
    ("overshoot", "text"),
    [
        ("", "Observation: 84\n"),
        ("\n", "Observation: 84\n"),
        ("Obser", "vation: 84\n"),
        ("Observation:", " 84\n"),
        ("Thought", "\nObservation: 84\n"),
    ],
)
def test_what_the_model_had_begun_is_not_written_twice(overshoot: str, text: str) -> None:
    assert observation(" 84\n", overshoot) == text


def test_overshoot_comes_from_the_token_that_ended_the_line() -> None:
    reader = parser()
    assert calls_of(list(reader.push(CALL + "\nObs")))
    assert reader.answer("84") == "ervation: 84\n"


@pytest.mark.parametrize(
    "text",
    [
        "Action: run!\nand hide",
        "Action",
        "x\nAction: a\nAction In",
        "a\n\nb\n",
    ],
)
def test_lines_that_are_no_call_stay_text(text: str) -> None:
    events = read(*text)
    assert text_of(events) == text
    assert not calls_of(events)


def test_text_is_not_held_back_without_need() -> None:
    assert text_of(read("Thought: Action", end=False)) == "Thought: Action"
    assert text_of(read("so\nAct", end=False)) == "so"


def test_an_input_without_an_action_is_malformed() -> None:
    malformed = [e for e in read("hm\nAction Input: 1\n") if isinstance(e, CallMalformed)]
    assert [event.reason for event in malformed] == [
        'write a line "Action: TOOL" above "Action Input:"'
    ]


def test_the_last_line_of_a_turn_needs_no_line_break() -> None:
    assert calls_of(read(CALL.rstrip("\n"))) == [("calculator", {"expression": "12*7"})]


@pytest.mark.parametrize(
    ("tool", "raw", "expected"),
    [
        ("calculator", " 12*7", {"expression": "12*7"}),
        ("calculator", '{"expression":\n "1"}', {"expression": "1"}),
        ("now", "", {}),
        ("now", " None", {}),
        ("telephone", "12", {"input": "12"}),
    ],
)
def test_inputs(tool: str, raw: str, expected: dict[str, object]) -> None:
    assert action_input(raw, SCHEMAS.get(tool)) == expected


@pytest.mark.parametrize("raw", ['{"expression": }', "[1]", '{"a": "'])
def test_inputs_that_cannot_be_read(raw: str) -> None:
    with pytest.raises(ValueError, match="Action Input"):
        action_input(raw, SCHEMAS["calculator"])


# A call within an open fence is an example of one.
@given(st.text(max_size=40).filter(lambda text: "```" not in text and "~~~" not in text))
@example("``")
def test_any_text_is_read_to_its_end(text: str) -> None:
    events = read(*text, CALL)
    assert sum(isinstance(event, CallFinished | CallMalformed) for event in events) >= 1
