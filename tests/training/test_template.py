"""The chat template, and the pieces that the runtime appends, agree with each other."""

import random

import pytest
import segments
from tasks.conversation import conversation
from tasks.exchange import Call, Exchange
from tasks.toolset import tool

CALCULATOR = tool("calculator", {"expression": "string"}, "Evaluate arithmetic.\nMore about it.")
CALL = {"function": {"name": "calculator", "arguments": {"expression": "12*7"}}}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 12*7?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
    {"role": "tool", "content": "84"},
    {"role": "tool", "content": "85"},
    {"role": "assistant", "content": "84 and 85."},
    {"role": "user", "content": "Thanks"},
]


def test_tools_are_listed_in_one_line_each():
    clock = tool("clock", {"timezone?": "string"}, "")
    text = segments.render(TALK[:2], [CALCULATOR, clock])
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n")
    assert "\ncalculator(expression: string): Evaluate arithmetic.\n" in text
    assert "\nclock(timezone?: string)\n" in text
    assert ") ->" in text


def test_unusual_schemas_are_listed_too():
    bare = {"name": "ping"}
    odd = tool("odd", {}, "Odd.")
    odd["function"]["parameters"] = {"properties": {"x": {"anyOf": [{"type": "string"}]}}}
    text = segments.render(TALK[1:2], [{"type": "function", "function": bare}, odd])
    assert "\nping()\n" in text
    assert "\nodd(x?: any): Odd.\n" in text


def test_tools_without_a_system_message_still_get_a_system_turn():
    text = segments.render(TALK[1:2], [CALCULATOR])
    assert text.startswith("<|im_start|>system\n# Tools\n")
    assert segments.render(TALK[1:2]) == "<|im_start|>user\nWhat is 12*7?<|im_end|>\n"


def test_appending_messages_never_changes_earlier_text():
    # Between two results of one turn there is no prompt, hence the pairs.
    for end in (1, 2, 3, 5, 6):
        shorter = segments.render(TALK[:end], [CALCULATOR])
        assert segments.render(TALK, [CALCULATOR]).startswith(shorter)


def test_calls_and_results_look_as_the_runtime_writes_them():
    text = segments.render(TALK[:5], [CALCULATOR], generate=True)
    block = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "12*7"}}\n</tool_call>'
    turn = f"<|im_start|>assistant\n{block}\n{block}<|im_end|>"
    assert text.endswith(turn + segments.bridge(["84", "85"]))


def test_arguments_may_be_a_json_string_and_content_may_stand_before_a_call():
    call = {"function": {"name": "f", "arguments": '{"a": "<é>"}'}}
    text = segments.render([{"role": "assistant", "content": "Well:", "tool_calls": [call]}])
    body = '<tool_call>\n{"name": "f", "arguments": {"a": "<é>"}}\n</tool_call>'
    assert text == f"<|im_start|>assistant\nWell:\n{body}<|im_end|>\n"
    call["function"]["arguments"] = {"a": "<é>"}
    assert segments.render([{"role": "assistant", "content": None, "tool_calls": [call]}]) == (
        f"<|im_start|>assistant\n{body}<|im_end|>\n"
    )


def test_inline_calls_are_cut_where_the_engine_pauses():
    call = Call("calculator", {"expression": "12*7"}, "84")
    said = Exchange("inline", "?", ("12 boxes of 7 eggs hold ", call, " 84 eggs."))
    assert segments.exchange_segments(said) == [
        segments.Segment("12 boxes of 7 eggs hold [calculator(12*7) ->", True),
        segments.Segment(" 84]", False),
        segments.Segment(" 84 eggs.<|im_end|>", True),
    ]


def messages_of(talk):
    """Write a conversation as a client of the chat API would."""
    messages = [{"role": "system", "content": talk.system}] if talk.system is not None else []
    for said in talk.exchanges:
        messages.append({"role": "user", "content": said.user})
        for step in said.steps:
            calls = [{"function": {"name": c.name, "arguments": c.arguments}} for c in step]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            messages += [{"role": "tool", "content": call.result} for call in step]
        texts = segments.exchange_segments(said)[2 * len(said.steps) :]
        answer = "".join(piece.text for piece in texts).removesuffix(segments.IM_END)
        messages.append({"role": "assistant", "content": answer})
    return messages


@pytest.mark.parametrize("seed", range(20))
def test_pieces_together_are_the_rendered_conversation(seed):
    talk = conversation(random.Random(seed))
    pieces = "".join(piece.text for piece in segments.conversation_segments(talk))
    assert pieces + "\n" == segments.render(messages_of(talk), talk.tools or None)
