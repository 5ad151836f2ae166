"""What servers of other makes send, read as the events of a turn."""

from collections.abc import Mapping
from typing import Any

import pytest

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    TextDelta,
    TurnEnded,
)
from caesura.runtime.remote.chat import ChatReader
from caesura.runtime.remote.heard import Heard
from caesura.runtime.remote.server import Refused


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def tool(index: int | None = 0, id: str | None = None, **function: Any) -> dict[str, Any]:
    call = {"index": index, "id": id, "type": "function", "function": function}
    return delta(tool_calls=[{name: value for name, value in call.items() if value is not None}])


def read(*chunks: Mapping[str, Any], taken: set[str] | None = None) -> tuple[list[Event], Heard]:
    heard = Heard(3, set() if taken is None else taken)
    reader = ChatReader(heard)
    events = [event for chunk in chunks for event in reader.take(chunk)]
    return events + heard.end(reader.finish == "length", reader.tokens, 10), heard


def test_a_call_is_finished_with_its_last_brace() -> None:
    """It can be dispatched before the server says that the answer has ended."""
    heard = Heard(1, set())
    reader = ChatReader(heard)
    reader.take(tool(id="c1", name="f", arguments=""))
    assert reader.take(tool(arguments='{"a": {"b": "}"')) == [
        ArgumentsDelta("c1", '{"a": {"b": "}"')
    ]
    assert reader.take(tool(arguments="}}")) == [
        ArgumentsDelta("c1", "}}"),
        CallFinished("c1", "f", '{"a": {"b": "}"}}'),
    ]


def test_several_calls_end_one_behind_another() -> None:
    events, heard = read(
        tool(0, "c1", name="f", arguments='{"x": 1}'),
        tool(1, "c2", name="g", arguments="{"),
        tool(1, arguments="}"),
        delta("tool_calls"),
    )
    assert [type(event) for event in events] == [
        *(CallStarted, ArgumentsDelta, CallFinished),
        *(CallStarted, ArgumentsDelta, ArgumentsDelta, CallFinished, TurnEnded),
    ]
    assert [call["id"] for call in heard.message["tool_calls"]] == ["c1", "c2"]
    assert events[-1] == TurnEnded("call", 0, 0, 0)


@pytest.mark.parametrize("arguments", ["", None])
def test_a_call_without_arguments_has_an_empty_object(arguments: str | None) -> None:
    events, heard = read(tool(id="c1", name="f", arguments=arguments), delta("stop"))
    assert events[-2:] == [CallFinished("c1", "f", "{}"), TurnEnded("call", 0, 0, 0)]
    assert heard.message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_calls_without_ids_or_numbers_get_them() -> None:
    events, _ = read(
        tool(None, name="f", arguments='{"x": 1}'), tool(None, name="g", arguments="{}")
    )
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert [(event.call_id, event.name) for event in finished] == [
        *(("call_3_1", "f"), ("call_3_2", "g"))
    ]


def test_an_id_that_an_earlier_turn_had_is_made_another() -> None:
    taken = {"functions.f:0"}
    events, heard = read(tool(id="functions.f:0", name="f", arguments="{}"), taken=taken)
    made = heard.message["tool_calls"][0]["id"]
    assert isinstance(events[0], CallStarted)
    assert events[0].call_id == made != "functions.f:0"
    assert taken == {"functions.f:0", made}


@pytest.mark.parametrize("text", ["[1]", "{'x': 1}", '{"x": ', "no JSON"])
def test_arguments_that_are_no_object_are_malformed(text: str) -> None:
    events, _ = read(tool(id="c1", name="f", arguments=text), delta("tool_calls"))
    assert isinstance(events[-2], CallMalformed)
    assert (events[-2].name, events[-2].text) == ("f", text.strip())


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thinking_goes_back_as_it_came(field: str) -> None:
    events, heard = read(delta(**{field: "Hm."}), delta(content="Hi."), delta("stop"))
    assert events[:2] == [ReasoningDelta("Hm."), TextDelta("Hi.")]
    assert heard.message == {"role": "assistant", "content": "Hi.", field: "Hm."}


def test_a_turn_counts_the_tokens_that_are_new() -> None:
    usage = {
        "prompt_tokens": 30,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 16},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    events, _ = read(delta("length", content="a"), {"choices": [], "usage": usage})
    assert events[-1] == TurnEnded("length", 20, 7, 16, reasoning_tokens=2)


def test_an_error_within_a_stream_is_a_refusal() -> None:
    with pytest.raises(Refused, match="out of memory"):
        read({"error": {"message": "out of memory", "code": 500}})
