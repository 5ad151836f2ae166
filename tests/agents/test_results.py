"""What recordings tell: requests, tokens, thoughts and refusals, in each of the three APIs."""

import json
from typing import Any

import pytest

from tests.agents.results import Exchange, FollowUp, Usage, exchanges_of, follow_ups

USER = {"role": "user", "content": "Mend it."}
TOOL = {"type": "function", "function": {"name": "bash"}}


def sent(path: str, body: dict[str, Any], *events: dict[str, Any]) -> dict[str, Any]:
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    return {"path": path, "method": "POST", "status": 200, "request": body, "response": stream}


def chunk(**delta: str) -> dict[str, Any]:
    return {"choices": [{"delta": delta}]}


CHAT = sent(
    "/v1/chat/completions",
    {"messages": [USER, {"role": "tool", "content": "x"}], "tools": [TOOL]},
    chunk(reasoning="Hm."),
    chunk(content="Yes."),
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 90,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
    },
)
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
MESSAGES = sent(
    "/v1/messages?beta=true",
    {"messages": [USER, {"role": "user", "content": [RESULT]}], "tools": [{"name": "bash"}]},
    {"type": "message_start", "message": {"usage": {"input_tokens": 26, "output_tokens": 0}}},
    {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Yes."}},
    {"type": "message_delta", "usage": {"output_tokens": 7, "cache_read_input_tokens": 64}},
)
RESPONSES = sent(
    "/v1/responses",
    {
        "input": [USER, {"type": "function_call_output", "output": "x"}],
        "tools": [{"type": "function", "name": "bash"}],
    },
    {"type": "response.reasoning_text.delta", "delta": "Hm."},
    {"type": "response.output_text.delta", "delta": "Yes."},
    {
        "type": "response.completed",
        "response": {
            "usage": {
                "input_tokens": 90,
                "input_tokens_details": {"cached_tokens": 64},
                "output_tokens": 7,
            }
        },
    },
)


@pytest.mark.parametrize("recording", [CHAT, MESSAGES, RESPONSES], ids=lambda each: each["path"])
def test_an_answer_of_each_api_is_read(recording: dict[str, Any]) -> None:
    [found] = exchanges_of([recording])
    assert (found.results, found.questions, found.tools) == (1, 1, frozenset({"bash"}))
    assert found.usage == Usage(90, 64, 7) and found.usage.computed == 26
    assert (found.thinking, found.text, found.refused) == ("Hm.", "Yes.", "")


def test_refusals_are_told_whole_and_in_a_stream() -> None:
    error = {"error": {"message": "There is\nno such tool."}}
    refused = CHAT | {"status": 400, "response": error}
    failed = sent("/v1/responses", {"input": []}, {"type": "response.failed", "response": error})
    found = list(exchanges_of([refused, failed]))
    assert [each.refused for each in found] == [
        "400 There is no such tool.",
        "in the stream: There is no such tool.",
    ]


def test_a_socket_holds_several_exchanges() -> None:
    body = RESPONSES["request"]
    events = [json.loads(line[6:]) for line in RESPONSES["response"].splitlines() if line]
    frames = [["client", body], *(["server", event] for event in events)] * 2
    found = list(exchanges_of([{"path": "/v1/responses", "method": "GET", "frames": frames}]))
    assert [each.usage for each in found] == [Usage(90, 64, 7)] * 2


def test_a_follow_up_goes_on_with_the_same_tools() -> None:
    def exchange(results: int, questions: int, prompt: int, cached: int, tool: str) -> Exchange:
        return Exchange(results, questions, frozenset([tool]), "", Usage(prompt, cached, 10))

    found = follow_ups(
        [
            exchange(0, 1, 100, 0, "bash"),
            exchange(1, 1, 130, 96, "bash"),
            exchange(1, 2, 150, 128, "bash"),
            exchange(0, 1, 90, 0, "bash"),
            exchange(1, 1, 120, 0, "other"),
        ]
    )
    assert list(found) == [FollowUp(20, 34), FollowUp(10, 22)]


def test_another_system_prompt_makes_all_new() -> None:
    def asked(status: str, *more: dict[str, Any]) -> dict[str, Any]:
        system = {"role": "system", "content": f"git status: {status}"}
        return CHAT | {"request": CHAT["request"] | {"messages": [system, USER, *more]}}

    result = {"role": "tool", "content": "x"}
    found = list(exchanges_of([asked(""), asked("", result), asked("M a.py", result, result)]))
    assert len(list(follow_ups(found))) == 1
