"""Thinking in the answers of vLLM's own server, by Caesura's parser of reasoning."""

from collections.abc import Iterator
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.parser.parser_manager import ParserManager

from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.client.tool_parsers import thinking_parser

TOKENIZER: Any = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
ASKED: list[Any] = [{"role": "user", "content": "?"}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "<think>"}}\n</tool_call>'
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
JSON = {"response_format": {"type": "json_object"}}
PLAIN, OPENED = "<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"
EARLIER = "<think>Earlier.</think>Hi.<|im_end|>\n" + PLAIN
CASES = [
    (PLAIN, "<think>\nHm.\n</think>\n\nFine.", ("Hm.", "Fine.", 0), {}),
    (PLAIN, "Fine.", (None, "Fine.", 0), {}),
    (PLAIN, "Fine </think> or <think> not.", (None, "Fine </think> or <think> not.", 0), {}),
    (PLAIN, "<thin ice>", (None, "<thin ice>", 0), {}),
    (PLAIN, "<thi", (None, "<thi", 0), {}),
    (PLAIN, " <think>a </thin b\n\nc </think>d </think>", ("a </thin b\n\nc", "d </think>", 0), {}),
    (PLAIN, "<think></think>Fine.", (None, "Fine.", 0), {}),
    (PLAIN, "<think>It is cut", ("It is cut", None, 0), {}),
    (EARLIER, "<think>Hm.</think>Fine.", ("Hm.", "Fine.", 0), {}),
    (EARLIER, "Fine.", (None, "Fine.", 0), {}),
    (OPENED, "Hm.\n</think>\n\nFine.", ("Hm.", "Fine.", 0), {}),
    (OPENED, "It is cut", ("It is cut", None, 0), {}),
    (OPENED, '{"a": 1}', (None, '{"a": 1}', 0), JSON),
    (PLAIN, '{"a": 1}', (None, '{"a": 1}', 0), JSON),
    (PLAIN, f"<think>\nHm {CALL}\n</think>\n\n{CALL}", (f"Hm {CALL}", None, 1), {"tools": [LOOK]}),
    (OPENED, f"Hm.</think>{CALL}", ("Hm.", None, 1), {"tools": [LOOK]}),
    (PLAIN, CALL, (None, None, 1), {"tools": [LOOK]}),
]


def begun(prompt: str, fields: dict[str, Any]) -> tuple[Any, ChatCompletionRequest, list[int]]:
    """Return a parser, the request and its prompt, as vLLM's server has them at the first token."""
    made: Any = ParserManager.get_parser(
        tool_parser_name="hermes",
        reasoning_parser_name=thinking_parser(["<think>"]),
        enable_auto_tools=True,
        tokenizer=TOKENIZER,
    )
    asked: dict[str, Any] = {"model": "m", "messages": ASKED, **fields}
    request = ChatCompletionRequest.model_validate(asked)
    made(TOKENIZER, request.tools).adjust_request(request)
    tokens = TOKENIZER.encode(prompt, add_special_tokens=False)
    return made(TOKENIZER, request.tools), request, tokens


def whole(prompt: str, text: str, fields: dict[str, Any]) -> tuple[Any, Any, int]:
    """Return what a whole answer is read as, in a context of its own, as each request has one."""
    return copy_context().run(_whole, prompt, text, fields)


def _whole(prompt: str, text: str, fields: dict[str, Any]) -> tuple[Any, Any, int]:
    parser, request, tokens = begun(prompt, fields)
    parser.is_reasoning_end(tokens)
    reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True)
    return reasoning, content or None, len(calls or ())


def streamed(
    prompt: str, pieces: list[str], fields: dict[str, Any]
) -> tuple[str | None, str | None, int]:
    """Return what the pieces of an answer are read as."""
    return copy_context().run(_streamed, prompt, pieces, fields)


def _streamed(
    prompt: str, pieces: list[str], fields: dict[str, Any]
) -> tuple[str | None, str | None, int]:
    parser, request, tokens = begun(prompt, fields)
    reasoning, content, calls = "", "", set()
    for number, piece in enumerate(pieces):
        ids = TOKENIZER.encode(piece, add_special_tokens=False)
        finished = number == len(pieces) - 1
        delta = parser.parse_delta(piece, ids, request, tokens, finished=finished)
        if delta is not None:
            reasoning += delta.reasoning or ""
            content += delta.content or ""
            calls |= {call.index for call in delta.tool_calls or ()}
    return reasoning or None, content or None, len(calls)


def cut(text: str, places: set[int]) -> Iterator[str]:
    bounds = [0, *sorted(place for place in places if 0 < place < len(text)), len(text)]
    for begin, end in pairwise(bounds):
        yield text[begin:end]


@pytest.mark.parametrize(("prompt", "text", "expected", "fields"), CASES)
def test_thinking_is_told_apart(prompt: str, text: str, expected: Any, fields: Any) -> None:
    assert whole(prompt, text, fields) == expected
    for size in (1, 3, 7, len(text)):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert streamed(prompt, pieces, fields) == expected, size


@given(st.sampled_from([case for case in CASES if not case[3]]), st.sets(st.integers(1, 90)))
def test_however_an_answer_is_cut_its_thinking_is_the_same(case: Any, places: set[int]) -> None:
    prompt, text, expected, fields = case
    assert streamed(prompt, [*cut(text, places)], fields) == expected


@pytest.mark.parametrize(
    ("prompt", "text", "thought"),
    [
        (PLAIN, "<think>one two three</think>four", "one two three"),
        (OPENED, "one two three</think>four", "one two three"),
        (OPENED, "one two three", "one two three"),
        (PLAIN, "one two three", ""),
        (PLAIN, "<think>one two", "one two"),
    ],
)
def test_tokens_of_thinking_are_counted(prompt: str, text: str, thought: str) -> None:
    parser, _, tokens = begun(prompt, {})
    copy_context().run(parser.is_reasoning_end, tokens)

    def encode(text: str) -> list[int]:
        return list(TOKENIZER.encode(text, add_special_tokens=False))

    head, tail = text.split(thought) if thought else (text, "")
    sampled = encode(head) + encode(thought) + encode(tail)
    assert parser.count_reasoning_tokens(sampled) == len(encode(thought))


@pytest.mark.parametrize("thought", ["Hm.\n</think>\n\n", "<think>Hm.</think>"])
def test_hidden_thinking_is_no_text(thought: str) -> None:
    """With `include_reasoning: false`, vLLM's server tells the parser of no prompt."""

    def read() -> Any:
        parser, request, _ = begun(OPENED, {"include_reasoning": False})
        return parser.parse(f"{thought}Fine.", request, enable_auto_tools=True)[:2]

    assert copy_context().run(read) == ("Hm.", "Fine.")
