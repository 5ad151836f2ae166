"""The memory of answers: only an unchanged history finds its tokens."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.scheduler.answers import BYTES_PER_TOKEN, MAX_VARIANTS, Answers, Missed
from caesura.scheduler.histories import Histories, History, length_up_to_answer
from caesura.scheduler.messages import Message, SessionSpec

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "day": {}}},
    },
}
SPEC = SessionSpec([TOOL], owner="a")
CALLS = [
    {
        "id": "abcdefghi",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Ulm", "day": 1}'},
    }
]
HISTORY: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello! How can I help?"},
    {"role": "user", "content": "How is the weather?"},
    {"role": "assistant", "content": "One moment.", "tool_calls": CALLS},
]
TOKENS = [3, 1, 4, 1, 5]


def history_of(messages: Sequence[Message], spec: SessionSpec) -> History:
    return Histories().of(messages, spec)


def found(messages: Sequence[Message], spec: SessionSpec = SPEC) -> Any:
    """Return what a memory of `HISTORY` alone finds for a history."""
    answers = Answers()
    answers.remember(history_of(HISTORY, SPEC), TOKENS)
    tokens = answers.find(history_of(messages, spec))
    return tokens.why if isinstance(tokens, Missed) else list(tokens)


def texts(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each text in JSON-able data."""
    if isinstance(data, str):
        return [path]
    items = data.items() if isinstance(data, dict) else enumerate(data)
    inside = data if isinstance(data, dict | list) else ()
    return [each for key, value in (items if inside else ()) for each in texts(value, (*path, key))]


def replaced(data: Any, path: tuple[Any, ...], text: str) -> Any:
    """Return a copy of the data with another text at the path."""
    data = copy.deepcopy(data)
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = text
    return data


def test_an_unchanged_history_finds_its_tokens() -> None:
    assert found(copy.deepcopy(HISTORY)) == TOKENS


def test_a_missing_field_equals_an_empty_one() -> None:
    calls = {"role": "assistant", "tool_calls": CALLS}
    answers = Answers()
    answers.remember(history_of([*HISTORY[:-1], {**calls, "content": None}], SPEC), TOKENS)
    for sent in (calls, {**calls, "content": ""}, {"content": None, **calls}):
        tokens = answers.find(history_of([*HISTORY[:-1], sent], SPEC))
        assert not isinstance(tokens, Missed) and list(tokens) == TOKENS


@given(st.data())
def test_a_change_of_one_character_is_seen(data: st.DataObject) -> None:
    # The type of a call is always `function`, its id reaches no template, and its arguments are
    # compared as values.
    left_out = ("type", "id", "arguments")
    paths = [path for path in texts(HISTORY) if path[-1] not in left_out]
    path = data.draw(st.sampled_from(paths))
    text: Any = HISTORY
    for step in path:
        text = text[step]
    at = data.draw(st.integers(0, len(text)))
    other = data.draw(st.sampled_from([text[:at] + text[at + 1 :], f"{text[:at]} {text[at:]}"]))
    if other != text:
        assert found(replaced(HISTORY, path, other)) in ("changed", "unknown")


@given(st.permutations(range(len(HISTORY) - 1)), st.sets(st.integers(0, len(HISTORY) - 2)))
def test_messages_removed_or_in_another_order_are_seen(order: list[int], gone: set[int]) -> None:
    kept = [HISTORY[at] for at in order if at not in gone]
    if kept != HISTORY[:-1]:
        assert found([*kept, HISTORY[-1]]) == "changed"


@given(st.data())
def test_other_tools_are_seen(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(texts([TOOL])))
    text = data.draw(st.text())
    tools = replaced([TOOL], path, text)
    if tools != [TOOL]:
        assert found(HISTORY, SessionSpec(tools, owner="a")) == "changed"


def test_the_order_of_a_tools_properties_counts() -> None:
    tool = copy.deepcopy(TOOL)
    tool["function"]["parameters"]["properties"] = {"day": {}, "city": {"type": "string"}}  # type: ignore[index]
    assert found(HISTORY, SessionSpec([tool], owner="a")) == "changed"


def test_answers_of_another_asker_are_not_known() -> None:
    assert found(HISTORY, SessionSpec([TOOL], owner="b")) == "unknown"


@pytest.mark.parametrize(
    ("remembered", "sent", "expected"),
    [
        ({"reasoning": "Hm."}, {}, TOKENS),
        ({"reasoning": "Hm."}, {"reasoning": "Hm."}, TOKENS),
        ({"reasoning": "Hm."}, {"reasoning_content": "Hm."}, TOKENS),
        ({"reasoning": "Hm."}, {"reasoning": "Ah."}, "messages[2].reasoning"),
        ({}, {"reasoning": "Ah."}, "messages[2].reasoning"),
    ],
)
def test_reasoning_may_be_left_out_but_not_changed(
    remembered: dict[str, str], sent: dict[str, str], expected: Any
) -> None:
    answers, answer = Answers(), {"role": "assistant", "content": "Fine."}
    answers.remember(history_of([*HISTORY[:2], {**answer, **remembered}], SPEC), TOKENS)
    tokens = answers.find(history_of([*HISTORY[:2], {**answer, **sent}], SPEC))
    assert (tokens.field if isinstance(tokens, Missed) else list(tokens)) == expected


def history(name: str) -> Any:
    return history_of(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": name}], SPEC
    )


def test_each_of_several_answers_that_say_the_same_is_kept() -> None:
    """Answers to one question may have other ids of calls and other thoughts."""
    answers = Answers()
    for number in range(MAX_VARIANTS):
        calls = [CALLS[0] | {"id": f"call{number}"}]
        answer = {"role": "assistant", "reasoning": f"Thought {number}.", "tool_calls": calls}
        answers.remember(history_of([*HISTORY[:-1], answer], SPEC), [number])
    for number in range(MAX_VARIANTS):
        sent: Message = {"role": "assistant", "tool_calls": [CALLS[0] | {"id": f"call{number}"}]}
        assert list(answers.find(history_of([*HISTORY[:-1], sent], SPEC))) == [number]  # type: ignore[arg-type]
        thought = {"role": "assistant", "reasoning": f"Thought {number}.", "tool_calls": CALLS}
        assert list(answers.find(history_of([*HISTORY[:-1], thought], SPEC))) == [number]  # type: ignore[arg-type]
    one_more = {"role": "assistant", "reasoning": "More.", "tool_calls": CALLS}
    answers.remember(history_of([*HISTORY[:-1], one_more], SPEC), TOKENS)
    assert len(answers) == MAX_VARIANTS


def test_the_answers_used_longest_ago_are_dropped_by_number() -> None:
    answers = Answers(max_answers=2)
    for name in "ab":
        answers.remember(history(name), TOKENS)
    answers.find(history("a"))
    answers.remember(history("c"), TOKENS)
    assert [isinstance(answers.find(history(name)), Missed) for name in "abc"] == [0, 1, 0]


def test_the_answers_used_longest_ago_are_dropped_by_bytes() -> None:
    answers = Answers(max_bytes=10 * BYTES_PER_TOKEN + 2 * history("a").size_bytes)
    answers.remember(history("a"), [1] * 6)
    answers.remember(history("a"), [1] * 5)
    answers.remember(history("b"), [1] * 5)
    assert len(answers) == 2
    answers.remember(history("c"), [1])
    assert answers.find(history("a")) == Missed("changed", "messages[1].content")
    answers.remember(history("d"), [1] * 1000)
    assert len(answers) == 0


@pytest.mark.parametrize(
    ("roles", "expected"),
    [("uau", 2), ("suauatt", 5), ("u", None), ("", None), ("ua", None), ("su", None)],
)
def test_a_follow_up_has_messages_behind_its_last_answer(roles: str, expected: int | None) -> None:
    names = {"u": "user", "a": "assistant", "s": "system", "t": "tool"}
    assert length_up_to_answer([{"role": names[role]} for role in roles]) == expected
