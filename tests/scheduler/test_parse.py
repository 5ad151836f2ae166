"""A turn's text to events through vLLM's own tool parsers, cut in every way."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.runtime.launch import BUNDLED_MODEL
from caesura.scheduler.vllm.client.parsing import turn_parser

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("calculator", "weather")
]

HERMES_TWO = (
    "Both.\n<tool_call>\n"
    '{"name": "calculator", "arguments": {"expression": "1+2"}}\n</tool_call>\n<tool_call>\n'
    '{"name": "weather", "arguments": {"city": "Zürich \\"x\\"", "days": [1, {"a": 2}]}}\n'
    "</tool_call>"
)
LLAMA_ONE = '{"name": "calculator", "parameters": {"expression": "1+2"}}'
MISTRAL_TWO = (
    '[TOOL_CALLS][{"name": "calculator", "arguments": {"expression": "1+2"}}, '
    '{"name": "weather", "arguments": {"city": "Zürich"}}]'
)
ONE_CALL = [("calculator", {"expression": "1+2"})]
CASES = [
    (
        "hermes",
        HERMES_TWO,
        "Both.\n",
        [*ONE_CALL, ("weather", {"city": 'Zürich "x"', "days": [1, {"a": 2}]})],
    ),
    (
        "hermes",
        '<tool_call>{"name": "calculator", "arguments": {}}</tool_call>',
        "",
        [("calculator", {})],
    ),
    ("hermes", "no call < here", "no call < here", []),
    ("llama3_json", LLAMA_ONE, "", ONE_CALL),
    ("llama3_json", "<|python_tag|>" + LLAMA_ONE, "", ONE_CALL),
    ("llama3_json", "no call { here", "no call { here", []),
    ("mistral", MISTRAL_TWO, "", [*ONE_CALL, ("weather", {"city": "Zürich"})]),
    ("mistral", "no call [ here", "no call [ here", []),
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    loaded = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    loaded.add_tokens(["<|python_tag|>", "[TOOL_CALLS]"])
    return loaded


def read(tokenizer: Any, form: str, pieces: Sequence[str]) -> list[Event]:
    parser = turn_parser(TURN_FORMATS[form], tokenizer, TOOLS)
    events: list[Event] = []
    for piece in pieces:
        events += parser.push(piece, tokenizer.encode(piece, add_special_tokens=False))
    return [*events, *parser.end()]


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    """Cut anywhere but inside a leading marker, which is a single special token to its model."""
    marker = next((m for m in ("[TOOL_CALLS]", "<|python_tag|>") if text.startswith(m)), "")
    edges = {len(marker) + c % (len(text) - len(marker) + 1) for c in cuts}
    return [
        text[a:b] for a, b in itertools.pairwise(sorted({0, len(marker), len(text), *edges})) if b
    ]


def text_of(events: Sequence[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls_of(events: Sequence[Event]) -> list[tuple[str, Any]]:
    return [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, CallFinished)]


def check_order(events: Sequence[Event]) -> None:
    """Started, then arguments, then finished; the pieces add up to the whole."""
    pieces: dict[str, str] = {}
    for event in events:
        if isinstance(event, CallStarted):
            assert event.call_id not in pieces
            pieces[event.call_id] = ""
        elif isinstance(event, ArgumentsDelta):
            pieces[event.call_id] += event.text
        elif isinstance(event, CallFinished):
            assert pieces.pop(event.call_id) == event.arguments
        elif isinstance(event, CallMalformed):
            pieces.pop(event.call_id, None)
    assert not pieces


@pytest.mark.parametrize(("form", "text", "shown", "calls"), CASES)
def test_token_by_token(
    tokenizer: Any, form: str, text: str, shown: str, calls: list[tuple[str, Any]]
) -> None:
    pieces = [tokenizer.decode([i]) for i in tokenizer.encode(text, add_special_tokens=False)]
    if "".join(pieces) != text:  # a character cut in two: vLLM's detokenizer waits for the rest
        pieces = cut(text, range(len(text)))
    events = read(tokenizer, form, pieces)
    assert text_of(events) == shown
    assert calls_of(events) == calls
    check_order(events)


@pytest.mark.parametrize(("form", "text", "shown", "calls"), CASES)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=30))
@example(cuts=[35])  # Mistral: behind the key "arguments", before its colon
@example(cuts=[35, 36, 37])
def test_any_cut_gives_the_same_calls(
    tokenizer: Any,
    form: str,
    text: str,
    shown: str,
    calls: list[tuple[str, Any]],
    cuts: list[int],
) -> None:
    events = read(tokenizer, form, cut(text, cuts))
    assert text_of(events) == shown
    assert calls_of(events) == calls
    check_order(events)


def test_calls_finish_before_the_turn_does(tokenizer: Any) -> None:
    parser = turn_parser(TURN_FORMATS["hermes"], tokenizer, TOOLS)
    first, rest = HERMES_TWO.split("</tool_call>", 1)
    events = [*parser.push(first + "</tool_call>", [1]), *parser.push(rest[:5], [2])]
    assert calls_of(events) == ONE_CALL


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", "<tool_call>\n{'name': calculator}\n</tool_call>"),
        ("hermes", '<tool_call>{"name": "calculator", "arguments": {"expression": "1'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "calculator", "arguments": "1+2"}</tool_call>'),
        ("mistral", '[TOOL_CALLS][{"name": "calculator", "arguments": {"expr'),
    ],
)
def test_broken_calls_are_malformed(tokenizer: Any, form: str, text: str) -> None:
    for pieces in (cut(text, []), cut(text, range(len(text)))):
        events = read(tokenizer, form, pieces)
        assert not calls_of(events)
        assert len([e for e in events if isinstance(e, CallMalformed)]) == 1
        check_order(events)


@pytest.mark.parametrize("text", ['{"answer": 42}', '{"name": "x"', "{ braces }"])
def test_json_that_is_no_call_is_text(tokenizer: Any, text: str) -> None:
    events = read(tokenizer, "llama3_json", list(text))
    assert not calls_of(events)
    malformed = [event.text for event in events if isinstance(event, CallMalformed)]
    assert text_of(events) == text or malformed == [text]


def test_a_good_call_beside_a_broken_one(tokenizer: Any) -> None:
    good = '<tool_call>{"name": "calculator", "arguments": {"expression": "1+2"}}</tool_call>'
    broken = '<tool_call>{"name": oops}</tool_call>'
    for text in (broken + good, good + broken):
        for pieces in ([text], list(text)):
            events = read(tokenizer, "hermes", pieces)
            assert calls_of(events) == ONE_CALL
            assert len([e for e in events if isinstance(e, CallMalformed)]) == 1
