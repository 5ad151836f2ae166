"""Items of the input, and the chat messages that they become."""

import base64
from typing import Any

import pytest

from caesura.runtime.server.http.errors import ApiError
from caesura.runtime.server.responses.items import items_of
from caesura.runtime.server.responses.messages import (
    encoded_summary,
    messages_of,
    with_instructions,
)


def messages(given: Any) -> list[dict[str, Any]]:
    return [dict(message) for message in messages_of(items_of(given))]


def call(call_id: str, name: str = "weather", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"} | fields


def output(call_id: str, text: Any = "sunny") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def shape(given: list[dict[str, Any]]) -> list[Any]:
    """Roles, with the ids of the calls made or answered."""
    return [
        (m["role"], [c["id"] for c in m["tool_calls"]])
        if "tool_calls" in m
        else (m["role"], m["tool_call_id"])
        if m["role"] == "tool"
        else m["role"]
        for m in messages(given)
    ]


def test_a_text_is_a_message_of_the_user() -> None:
    assert messages("Hello") == [{"role": "user", "content": "Hello"}]
    (item,) = items_of("Hello")
    assert item["type"] == "message" and item["id"].startswith("msg_")
    assert item["content"] == [{"type": "input_text", "text": "Hello"}]


def test_messages_need_no_type_and_keep_their_roles() -> None:
    given = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "A"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "B"}], "phase": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "C"}]},
    ]
    assert [(m["role"], m["content"]) for m in messages(given)] == [
        ("system", "Be brief."),
        ("user", "A"),
        ("assistant", "B"),
        ("assistant", "C"),
    ]


def test_a_file_of_text_is_text_and_stays_a_file() -> None:
    data = base64.b64encode("naïve".encode()).decode()
    file = {
        "type": "input_file",
        "filename": "a.txt",
        "file_data": f"data:text/plain;base64,{data}",
    }
    asked = {"role": "user", "content": [{"type": "input_text", "text": "Read:"}, file]}
    assert items_of([asked])[0]["content"][1] == file
    assert messages([asked])[0]["content"] == "Read:\na.txt:\nnaïve"
    assert messages([call("a"), output("a", [file])])[-1]["content"] == "a.txt:\nnaïve"
    picture = {"type": "input_image", "image_url": "https://x.example/a.png"}
    seen = messages([{"role": "user", "content": [file, picture]}])[0]["content"]
    assert seen[0] == {"type": "text", "text": "a.txt:\nnaïve"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"file_id": "f"}, "file_id"),
        ({"file_url": "https://x.example"}, "file_url"),
        ({}, "file_data"),
        ({"file_data": "JVBERi0xAP8="}, "file_data"),
        ({"file_data": "data:application/pdf;base64,JVBERi0xAP8="}, "file_data"),
        ({"file_data": "no base64"}, "file_data"),
    ],
)
def test_a_file_that_is_no_text_is_refused(fields: dict[str, str], path: str) -> None:
    with pytest.raises(ApiError) as refused:
        items_of([{"role": "user", "content": [{"type": "input_file", **fields}]}])
    assert refused.value.param == f"input[0].content[0].{path}"


def test_parallel_calls_make_one_message_and_sequential_calls_two() -> None:
    said = {"role": "assistant", "content": "Let me see."}
    parallel = [said, call("a"), call("b"), output("a"), output("b")]
    assert shape(parallel) == [("assistant", ["a", "b"]), ("tool", "a"), ("tool", "b")]
    sequential = [call("a"), output("a"), call("b"), output("b")]
    expected = [("assistant", ["a"]), ("tool", "a"), ("assistant", ["b"]), ("tool", "b")]
    assert shape(sequential) == expected


def test_a_result_tells_its_tool_and_takes_parts_of_text() -> None:
    parts = [{"type": "input_text", "text": "1"}, {"type": "input_text", "text": "2"}]
    told = messages([call("a", namespace="home"), output("a", parts)])
    assert told[1] == {
        "role": "tool",
        "tool_call_id": "a",
        "name": "home__weather",
        "content": "1\n2",
    }


def server_call(turn: str, call_id: str, **fields: Any) -> dict[str, Any]:
    item = {"type": "mcp_call", "id": f"mcp_{turn}_{call_id}", "name": "double", "arguments": "{}"}
    return item | {"server_label": "caesura", "output": "4"} | fields


def test_server_calls_of_one_turn_stay_together() -> None:
    given = [server_call("t1", "a"), server_call("t1", "b"), server_call("t2", "c")]
    assert shape(given) == [
        ("assistant", ["a", "b"]),
        ("tool", "a"),
        ("tool", "b"),
        ("assistant", ["c"]),
        ("tool", "c"),
    ]


def test_a_failed_server_call_tells_its_error() -> None:
    error = {"type": "mcp_tool_execution_error", "content": "error: no"}
    told = messages([server_call("t", "a", output=None, error=error)])
    assert told[1]["content"] == "error: no"


APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_0123456789abcdef",
    "name": "double",
    "arguments": "{}",
    "server_label": "caesura",
}


def decision(approve: bool, **fields: Any) -> dict[str, Any]:
    answer = {"type": "mcp_approval_response", "approval_request_id": APPROVAL["id"]}
    return answer | {"approve": approve} | fields


def test_a_denied_call_is_an_error_for_the_model() -> None:
    told = messages([APPROVAL, decision(False, reason="too large")])
    assert told[1]["content"] == "error: a person denied this call: too large"


def test_an_approved_call_is_told_once() -> None:
    made = server_call("t", "a", approval_request_id=APPROVAL["id"])
    assert shape([APPROVAL, decision(True), made]) == [("assistant", ["a"]), ("tool", "a")]


def test_a_call_without_a_decision_counts_as_cancelled() -> None:
    told = messages([APPROVAL, {"role": "user", "content": "Never mind."}])
    assert [m["role"] for m in told] == ["assistant", "tool", "user"]
    assert "cancelled" in told[1]["content"]


def test_what_the_model_need_not_see_is_left_out() -> None:
    listed = {"type": "mcp_list_tools", "server_label": "caesura", "tools": []}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert messages([listed, reasoning, {"role": "user", "content": "x"}]) == [
        {"role": "user", "content": "x"}
    ]


def test_reasoning_belongs_to_what_follows_it() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text"}]}
    first, second = ({**thought, "content": [{**thought["content"][0], "text": t}]} for t in "ab")  # type: ignore[index, dict-item]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "1"}
    told = messages([first, call, output, second, {"role": "assistant", "content": "x"}])
    assert [message.get("reasoning") for message in told] == ["a", None, "b"]
    told = messages([first, second, call])
    assert [message["reasoning"] for message in told] == ["a\n\nb"]
    assert "reasoning" not in messages([first, {"role": "user", "content": "x"}])[0]


def test_a_compaction_is_a_summary() -> None:
    content = encoded_summary("They agreed on Tuesday.")
    (told,) = messages([{"type": "compaction", "encrypted_content": content}])
    assert "They agreed on Tuesday." in told["content"]


def test_instructions_are_the_first_system_message() -> None:
    history = messages([{"role": "developer", "content": "B"}, {"role": "user", "content": "C"}])
    told = with_instructions("A", history)
    assert [(m["role"], m["content"]) for m in told] == [
        ("system", "A"),
        ("system", "B"),
        ("user", "C"),
    ]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (7, "input"),
        ([7], "input[0]"),
        ([{"type": "custom_call"}], "input[0].type"),
        ([{"type": "custom_tool_call"}], "input[0].call_id"),
        ([{"type": "custom_tool_call", "call_id": "a", "name": "b"}], "input[0].input"),
        ([{"type": "local_shell_call", "call_id": "a"}], "input[0].action"),
        ([{"type": "custom_tool_call_output", "call_id": "a", "output": ""}], "input"),
        ([{"type": ["message"]}], "input[0].type"),
        ([{"role": "robot", "content": ""}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].image_url"),
        ([{"role": "user", "content": [{"type": "input_smell"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "input[0].content[0].text"),
        ([{"role": "user", "content": "", "status": "done"}], "input[0].status"),
        ([call("")], "input[0].call_id"),
        ([call("a", arguments={})], "input[0].arguments"),
        ([output("a")], "input"),
        ([decision(True) | {"approve": "yes"}], "input[0].approve"),
        ([{"type": "compaction", "encrypted_content": "?"}], "input"),
        ([{}], "input[0].id"),
    ],
)
def test_a_wrong_item_is_refused_by_its_path(given: Any, path: str) -> None:
    with pytest.raises(ApiError) as refused:
        messages(given)
    assert (refused.value.status, refused.value.param) == (400, path)
