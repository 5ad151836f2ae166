"""JSON and lists that are answers are streamed as text, and the request does not pause for them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.events import TextDelta
from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import TOOLS, check_prose
from tests.formats.world import decode, stand_in

ANSWERS = {
    "llama3_json": [
        '{"answer": 42, "calls": []}',
        '{"name": "Ada Lovelace", "parameters": {"born": 1815}}',
        '{"name": "searcher", "parameters": {}}',
        '{"name": "search", "description": "Finds trees.", "parameters": {"type": "object"}}',
        '{"name": "now"}',
        '{"name": 3}',
        '{"type": "object", "properties": {}}',
        '{"type": "function", "function": {"name": "search"}}',
        '{"parameters": [1, 2]}',
        "{}",
        "{ x | x > 0 } is a set.",
    ],
    "pythonic": [
        "[1] A footnote.",
        "[]",
        "[search, now]",
        "[x for x in range(3)]",
        "[searcher(query='oak')]",
        "[telephone(number='12')]",
        "[search(query) for query in queries]",
        "[search('oak')]",
        "[the book](http://x)",
    ],
}
PAIRS = [(name, text) for name, texts in ANSWERS.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), PAIRS)
def test_an_answer_is_text_and_the_request_does_not_pause(name: str, text: str) -> None:
    model = stand_in(name)
    tokens = model.by_bytes(text)
    for step in (1, 2, 3, 5, 8, len(tokens) + 1):
        outcome = decode(model, tokens, TOOLS, step)
        check_prose(outcome, text)


@pytest.mark.parametrize(
    ("name", "text", "known"),
    [
        ("llama3_json", '{"answer": "a long one"}', '{"an'),
        ("llama3_json", '{"name": "Ada", "born": 1815}', '{"name": "A'),
        ("llama3_json", '{"name": "now", "is": "late"}', '{"name": "now", "i'),
        ("pythonic", "[1, 2, 3, 4, 5, 6]", "[1"),
        ("pythonic", "[search(query) for query in queries]", "[search(query)"),
    ],
)
def test_an_answer_is_streamed_from_the_first_byte_that_tells(
    name: str, text: str, known: str
) -> None:
    model = stand_in(name)
    pieces = decode(model, model.by_bytes(text), TOOLS).events
    assert isinstance(pieces[0], TextDelta)
    assert pieces[0].text == known
    assert len(pieces) == len(text) - len(known) + 1


CALLS = {
    "llama3_json": [
        '{"name": "search", "parameters": {"query": "oak"}}',
        '{ "type" : "function", "name": "search", "parameters": {"query": "oak"}}',
        '\n{"name": "search", "arguments": {"query": "oak"}}',
        '{"parameters": {"query": "oak"}, "name": "search"}',
        r'{"name": "s\u0065arch", "parameters": {"query": "oak"}}',
    ],
    "pythonic": ["[search(query='oak')]", " [ search ( query = 'oak' ) ]"],
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in CALLS.items() for text in texts]
)
def test_a_call_of_a_tool_on_offer_is_run(name: str, text: str) -> None:
    model = stand_in(name)
    tokens = model.by_bytes(text)
    for step in (1, 2, 3, 5, 8, len(tokens) + 1):
        outcome = decode(model, tokens, TOOLS, step)
        assert [(got, json.loads(given)) for got, given in outcome.calls] == [
            ("search", {"query": "oak"})
        ]
        assert outcome.verdict is Verdict.CALL


def test_an_answer_whose_name_comes_last_is_text() -> None:
    """Only its end shows that it is none, so the request has paused for nothing."""
    model, text = stand_in("llama3_json"), '{"parameters": {"born": 1815}, "name": "Ada"}'
    assert decode(model, model.by_bytes(text), TOOLS).summary == [("text", text)]


PIECES = [
    *('{"name": "', '{"', '": "', "search", "now", '", "', 'parameters": {', "}"),
    '"query": 1',
    "{",
    *('"type": "function"', ", ", "\\", "[", "(", "query=", ")", "]", "'x'", " ", "\n", "é", "1"),
]


@pytest.mark.parametrize("name", ANSWERS)
def test_both_processes_agree_on_what_is_a_call(name: str) -> None:
    model = stand_in(name)

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.sampled_from(PIECES), max_size=10), st.integers(1, 7))
    def check(parts: list[str], step: int) -> None:
        outcome = decode(model, model.by_bytes("".join(parts)), TOOLS, step)
        if outcome.calls or outcome.malformed:
            assert outcome.verdict is Verdict.CALL
        if outcome.verdict is Verdict.END:
            assert outcome.shown == "".join(parts)

    check()
