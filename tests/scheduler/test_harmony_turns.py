"""What is written behind a turn of gpt-oss, against what vLLM's server makes of the whole."""

from typing import Any

import pytest
from vllm.entrypoints.openai.parser.harmony_utils import (
    get_encoding,
    parse_chat_inputs_to_harmony_messages,
    render_for_completion,
)

from caesura.scheduler.errors import UsageError
from caesura.scheduler.vllm.client.rendering.harmony import harmony_behind
from caesura.scheduler.vllm.client.rendering.render import Continuation

QUESTION = {"role": "user", "content": "How warm is Bern?"}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "weather", "arguments": '{"city":"Bern"}'},
        }
    ],
}
ANSWER = {"role": "assistant", "content": "17 degrees."}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": '17 "degrees" <|end|>\n'}
NEXT = {"role": "user", "content": [{"type": "text", "text": "And Rome?"}]}
LATE = {"role": "system", "content": "Be brief."}
CASES: dict[str, tuple[Any, str, list[Any]]] = {
    "result": (CALL, "<|call|>", [RESULT]),
    "result and question": (CALL, "<|call|>", [RESULT, NEXT]),
    "question": (ANSWER, "<|return|>", [NEXT]),
    "system and question": (ANSWER, "<|return|>", [LATE, NEXT]),
    "question behind a cut answer": (ANSWER, "", [NEXT]),
}


def token(text: str) -> int:
    (made,) = get_encoding().encode(text, allowed_special="all")
    return int(made)


def rendered(*messages: Any) -> list[int]:
    return render_for_completion(parse_chat_inputs_to_harmony_messages([*messages]))


ENDS = frozenset({token("<|return|>"), token("<|call|>")})
GENERATION = get_encoding().encode("<|start|>assistant", allowed_special="all")


@pytest.mark.parametrize("case", CASES)
def test_what_follows_a_turn_is_what_the_server_writes(case: str) -> None:
    turn, end, later = CASES[case]
    before, begin = rendered(QUESTION, turn), rendered(QUESTION)
    assert before[-len(GENERATION) :] == begin[-len(GENERATION) :] == GENERATION
    ended = [token(end)] if end else []
    tokens = [*before[: -len(GENERATION) - 1], *ended]
    last = tokens[-1]
    behind = harmony_behind(Continuation(turn, later, (), last), ENDS)
    assert behind.joined(tokens) == rendered(QUESTION, turn, *later)
    assert behind.instead == (end == "<|return|>")


def test_the_answer_of_a_tool_has_the_name_of_its_call() -> None:
    behind = harmony_behind(Continuation(CALL, [RESULT], (), token("<|call|>")), ENDS)
    assert get_encoding().decode(behind.tokens).startswith("<|start|>functions.weather")


def test_what_the_library_refuses_is_a_mistake_of_the_caller() -> None:
    broken = {"role": "nobody", "content": "Hi."}
    with pytest.raises(UsageError, match="openai_harmony refused the messages"):
        harmony_behind(Continuation(ANSWER, [broken], (), token("<|return|>")), ENDS)
