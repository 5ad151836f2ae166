"""What is appended behind a turn, against what the templates of models make of the whole."""

from typing import Any, NamedTuple

import pytest

from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.render import Continuation, Renderer
from tests.scheduler.real_templates import renderer_of

QUESTION: Message = {"role": "user", "content": "How warm is Bern?"}
RESULT: Message = {
    "role": "tool",
    "tool_call_id": "abcdefghi",
    "name": "weather",
    "content": "17 degrees",
}
NEXT: Message = {"role": "user", "content": "And Rome?"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
THOUGHT = "I look it up."
ANSWER = "It is 17."
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
TAGGED = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n"
    "</tool_call>"
)
GLM = "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>"
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n"
    '```json\n{"city": "Bern"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
LLAMA = '{"name": "weather", "parameters": {"city": "Bern"}}'
HARMONY = ' to=functions.weather<|channel|>commentary json<|message|>{"city": "Bern"}'
ANALYSIS = f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"


class Turn(NamedTuple):
    """What a model writes: its thinking, then a call or an answer, and the tokens that end them."""

    before: str
    call: str
    answer: str
    ends: tuple[str, str]


TURNS = {
    "qwen2_5": Turn("", HERMES, ANSWER, ("<|im_end|>",) * 2),
    "qwen3": Turn(f"<think>\n{THOUGHT}\n</think>\n\n", HERMES, ANSWER, ("<|im_end|>",) * 2),
    "qwen3_5_think": Turn(f"{THOUGHT}\n</think>\n\n", TAGGED, ANSWER, ("<|im_end|>",) * 2),
    "nemotron_3_nano": Turn(f"{THOUGHT}\n</think>\n", f"{TAGGED}\n", ANSWER, ("<|im_end|>",) * 2),
    "glm4moe": Turn(f"\n<think>{THOUGHT}</think>\n", GLM, ANSWER, ("<|observation|>", "<|user|>")),
    "llama3_1": Turn("", LLAMA, ANSWER, ("<|eot_id|>",) * 2),
    "deepseekv3": Turn("", DEEPSEEK, ANSWER, ("<｜end▁of▁sentence｜>",) * 2),
    "gptoss": Turn(
        ANALYSIS, HARMONY, f"<|channel|>final<|message|>{ANSWER}", ("<|call|>", "<|return|>")
    ),
}
DIFFERENCES: dict[tuple[str, str], Any] = {
    # These templates drop the thinking once a question follows. The engine's tokens keep it.
    ("qwen3", "user"): (f"<think>\n{THOUGHT}\n</think>\n\n", ""),
    ("qwen3_5_think", "user"): (f"<think>\n{THOUGHT}\n</think>\n\n", ""),
    ("nemotron_3_nano", "user"): (f"\n{THOUGHT}\n", ""),
    ("glm4moe", "user"): (THOUGHT, ""),
    # This template opens thinking in a prompt and never in a history.
    ("deepseekv3", "tool"): ("think>\n<", ""),
    ("deepseekv3", "user"): ("<think>\n", ""),
    # The token that ends an answer differs in a history, so that the whole is rendered.
    ("gptoss", "user"): None,
}
"""What stands in our text and not in the template's, and the other way round."""


def message(turn: Turn, calls: bool) -> Message:
    made: dict[str, Any] = {"role": "assistant", "content": "" if calls else ANSWER}
    if THOUGHT in turn.before:
        made["reasoning"] = THOUGHT
    if calls:
        function = {"name": "weather", "arguments": '{"city": "Bern"}'}
        made["tool_calls"] = [{"id": "abcdefghi", "type": "function", "function": function}]
    return made


def appended(renderer: Renderer, after: Continuation) -> list[int] | None:
    exact = renderer.bridge(after)
    return exact if exact is not None else renderer.splice(after)


@pytest.mark.parametrize("later", [RESULT, NEXT], ids=["result", "question"])
@pytest.mark.parametrize("template", TURNS)
def test_what_follows_a_turn_is_what_the_template_writes(template: str, later: Message) -> None:
    tokenizer, renderer = renderer_of(template)
    turn, calls = TURNS[template], later is RESULT
    written, end = (turn.call, turn.ends[0]) if calls else (turn.answer, turn.ends[1])
    said = message(turn, calls)
    last = tokenizer.convert_tokens_to_ids(end)
    new = appended(renderer, Continuation(said, [later], TOOLS, last))
    whole = tokenizer.decode(renderer.prompt([QUESTION, said, later], TOOLS))
    ours = None
    if new is not None:
        begin = tokenizer.decode(renderer.prompt([QUESTION], TOOLS))
        ours = f"{begin}{turn.before}{written}{end}{tokenizer.decode(new)}"
    assert difference(ours, whole) == DIFFERENCES.get((template, str(later["role"])), ("", ""))


def difference(ours: str | None, whole: str) -> tuple[str, str] | None:
    """Return what stands in one text and not in the other, or None without our text."""
    if ours is None:
        return None
    begin = 0
    while begin < min(len(ours), len(whole)) and ours[begin] == whole[begin]:
        begin += 1
    ours, whole = ours[begin:], whole[begin:]
    while ours and whole and ours[-1] == whole[-1]:
        ours, whole = ours[:-1], whole[:-1]
    return ours, whole
