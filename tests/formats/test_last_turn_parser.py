"""vLLM's parsers of reasoning, which see no earlier turn of a prompt."""

from typing import Any

import pytest
from transformers import AutoTokenizer
from vllm.reasoning import ReasoningParserManager

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.client.tool_parsers import parser_of_last_turn

ENDS = ("<|im_end|>",)
PLAIN = "<|im_start|>assistant\n"
OPENED = f"{PLAIN}<think>\n"
CLOSED = f"{OPENED}\n</think>\n\n"
EARLIER = f"{PLAIN}<think>Earlier.</think>Hi.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n"
ANSWERS = (
    "<think>So.",
    "<think>So.</think>Hi.",
    "<think>So.</think>Hi.<|im_end|>",
    "Hi.<|im_end|>",
)
LOOK_BACK = ("deepseek_r1", "ernie45", "glm45", "hy_v4", "kimi_k2", "minimax_m2", "step3")
"""Parsers that take the end of an earlier answer's thinking for that of the next one."""
KNOW_TURNS = ("mimo", "nemotron_v3", "qwen3", "step3p5")
BY_NAME = ("hf", "kimi_k3", "minicpmv")
"""With these, vLLM reads answers in another way altogether."""


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    made.add_tokens(["<think>", "</think>"])
    return made


def ends_in(tokenizer: Any, name: str, text: str) -> bool:
    parser = ReasoningParserManager.get_reasoning_parser(name)(tokenizer)
    return bool(parser.is_reasoning_end(tokenizer.encode(text, add_special_tokens=False)))


@pytest.mark.parametrize("name", [*LOOK_BACK, *KNOW_TURNS])
def test_earlier_turns_of_a_prompt_do_not_count(tokenizer: Any, name: str) -> None:
    own = parser_of_last_turn(name, frozenset(map(tokenizer.convert_tokens_to_ids, ENDS)))
    assert own is not None
    for begin in (PLAIN, OPENED, CLOSED):
        alone = ends_in(tokenizer, name, begin)
        assert alone == (begin == CLOSED)
        assert ends_in(tokenizer, own, begin) == ends_in(tokenizer, own, EARLIER + begin) == alone
    assert ends_in(tokenizer, name, EARLIER + PLAIN) == (name in LOOK_BACK)
    for answer in ANSWERS:
        assert ends_in(tokenizer, own, answer) == ends_in(tokenizer, name, answer)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_parser_that_vllm_knows_by_name_stays_as_it_is(name: str) -> None:
    assert parser_of_last_turn(name, frozenset()) is None
