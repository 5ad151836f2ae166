"""Special tokens belong to an answer's text only where calls are written with them."""

from dataclasses import dataclass
from typing import Any

import pytest

from caesura.scheduler.vllm.tokenizer import reads_special_tokens


@dataclass
class Added:
    content: str
    special: bool = True


class Tokenizer:
    def __init__(self, *special: str) -> None:
        self.added_tokens_decoder = {i: Added(text) for i, text in enumerate(special)}
        self.added_tokens_decoder[99] = Added("<tool_call>", special=False)


@pytest.mark.parametrize(
    ("formats", "special", "expected"),
    [
        (("hermes",), ("<|im_end|>", "<|endoftext|>"), False),
        ((), ("<|im_end|>",), False),
        (("hermes",), ("<|im_end|>", "<tool_call>"), True),
        (("llama3_json",), ("<|eot_id|>", "<|python_tag|>"), True),
        (("mistral",), ("[TOOL_CALLS]",), True),
        (("kimi_k2",), ("<|tool_call_begin|>",), True),
        (("deepseek_v3",), ("<｜tool▁sep｜>",), True),
        (("harmony",), ("<|message|>",), True),
        (("hermes",), ("<think>",), True),
    ],
)
def test_they_are_read_where_they_matter(
    formats: tuple[str, ...], special: tuple[str, ...], expected: bool
) -> None:
    assert reads_special_tokens(Tokenizer(*special), formats) is expected


def test_an_unknown_tokenizer_may_need_them() -> None:
    tokenizer: Any = object()
    assert reads_special_tokens(tokenizer, ("hermes",))
