"""What is appended behind a turn, against what the templates of models make of the whole."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from caesura.scheduler.messages import Message
from caesura.scheduler.vllm.client.rendering.render import Behind, Continuation, Renderer
from tests.scheduler.real_templates import renderer_of
from tests.scheduler.template_turns import ANSWER, CALLS, SAID, THOUGHT, TURNS, Turn, call_id

QUESTION: Message = {"role": "user", "content": "How warm is Bern?"}
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
DROPPED_TEXT = ("mistral_nemo", "mistral_small_3_2")
"""These templates drop a text beside calls. The engine's tokens keep it."""
DIFFERENCES: dict[tuple[str, str], Any] = {
    **{(template, "text, result"): (SAID, "") for template in DROPPED_TEXT},
    # These templates drop it too, so that an answer with the text stands before the call.
    ("hermes", "text, result"): ("", "|im_end|>\n<|im_start|>assistant\n<"),
    ("xlam_qwen", "text, result"): ("", "<|im_end|>\n<|im_start|>assistant\n"),
    ("llama3_1", "text, result"): (
        "",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    # This one moves it behind the results.
    ("gemma4", "text, result"): ("", "\n"),
    # These templates drop the thinking once a question follows. The engine's tokens keep it.
    ("qwen3", "question"): (f"<think>\n{THOUGHT}\n</think>\n\n", ""),
    ("qwen3_5_think", "question"): (f"<think>\n{THOUGHT}\n</think>\n\n", ""),
    ("minimax_m2", "question"): (f"<think>\n{THOUGHT}\n</think>\n\n", ""),
    ("nemotron_3_nano", "question"): (f"\n{THOUGHT}\n", ""),
    ("glm4moe", "question"): (THOUGHT, ""),
    ("glm_4_6", "question"): (THOUGHT, ""),
    # This template opens thinking in a prompt and never in a history.
    ("deepseekv3", "result"): ("think>\n<", ""),
    ("deepseekv3", "results"): ("think>\n<", ""),
    ("deepseekv3", "text, result"): ("<think>\n", ""),
    ("deepseekv3", "question"): ("<think>\n", ""),
    ("gptoss", "question"): (
        f"analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>",
        "",
    ),
    # The description of the tools moves to the last question, so that the whole is rendered.
    ("mistral_nemo", "question"): None,
    ("mistral_small_3_2", "question"): None,
}
"""What stands in our text and not in the template's, and the other way round."""
REWRITTEN = {
    "granite_3": "calls in many lines",
    "phi4_mini": "arguments as Python, and no text beside calls",
    "llama4_json": "line breaks around a turn",
    "deepseekv3_tools": "spaces around a turn",
}
"""Templates that write every earlier turn in another way than the model, and in which way."""


def result(number: int) -> Message:
    content = f"{17 + number} degrees"
    return {
        "role": "tool",
        "tool_call_id": call_id(number),
        "name": "weather",
        "content": content,
    }


def message(turn: Turn, text: str, calls: int) -> Message:
    made: dict[str, Any] = {"role": "assistant", "content": text}
    if THOUGHT in turn.before:
        made["reasoning"] = THOUGHT
    if calls:
        cities = [call.arguments["city"] for call in CALLS]
        made["tool_calls"] = [
            {
                "id": call_id(number),
                "type": "function",
                "function": {"name": "weather", "arguments": f'{{"city": "{city}"}}'},
            }
            for number, city in enumerate(cities[:calls])
        ]
    return made


def case(turn: Turn, shape: str) -> tuple[str, str, Message, Sequence[Message]]:
    """What the model writes, the token that ends it, its message, and the messages behind it."""
    call, answer = turn.ends
    match shape:
        case "result":
            return turn.call, call, message(turn, "", 1), [result(0)]
        case "results":
            return turn.two, call, message(turn, "", 2), [result(0), result(1)]
        case "text, result":
            assert turn.between is not None
            written = f"{SAID}{turn.between}{turn.call}"
            return written, call, message(turn, SAID, 1), [result(0)]
        case _:
            return turn.answer, answer, message(turn, ANSWER, 0), [NEXT]


cached_renderer_of = cache(renderer_of)


def appended(renderer: Renderer, after: Continuation) -> Behind | None:
    exact = renderer.bridge(after)
    return Behind(exact) if exact is not None else renderer.splice(after)


@pytest.mark.parametrize("shape", ["result", "results", "text, result", "question"])
@pytest.mark.parametrize("template", TURNS)
def test_what_follows_a_turn_is_what_the_template_writes(template: str, shape: str) -> None:
    tokenizer, renderer = cached_renderer_of(template)
    turn = TURNS[template]
    if (shape == "results" and not turn.two) or (shape == "text, result" and turn.between is None):
        pytest.skip("the family does not write such turns")
    written, end, said, later = case(turn, shape)
    last = tokenizer.convert_tokens_to_ids(end)
    behind = appended(renderer, Continuation(said, later, TOOLS, last))
    new = None if behind is None else behind.tokens
    whole = tokenizer.decode(renderer.prompt([QUESTION, said, *later], TOOLS))
    begin = tokenizer.decode(renderer.prompt([QUESTION], TOOLS))
    if template in REWRITTEN:
        assert new is not None and str(later[-1]["content"]) in tokenizer.decode(new)
        assert whole.endswith(tokenizer.decode(new)) and written not in tokenizer.decode(new)
        return
    ours = None
    if behind is not None:
        end = "" if behind.instead else end
        ours = f"{begin}{turn.before}{written}{end}{tokenizer.decode(new)}"
    assert difference(ours, whole) == DIFFERENCES.get((template, shape), ("", ""))


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
