"""Calls in mid sentence, as the reader and the runtime see them."""

import contextlib
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.calls.events import CallMalformed, CallStarted, Event
from caesura.intercept.calls.inline import (
    InlineParser,
    check_end,
    inline_arguments,
    inline_result,
)

from .reading import calls_of, counted_ids, read_turn, text_of

SCHEMAS = {
    "calculator": {"properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    "convert": {
        "properties": {"value": {"type": "number"}, "unit": {"type": "string"}},
        "required": ["value", "unit"],
    },
    "now": {"properties": {}},
}


def parser() -> InlineParser:
    return InlineParser(SCHEMAS, counted_ids())


def read(*pieces: str, end: bool = True) -> list[Event]:
    return read_turn(parser(), pieces, end)


def test_the_reader_sees_the_sentence_and_not_the_bracket() -> None:
    events = read("12 boxes hold [calculator(12*7) ->", " 84 eggs.")
    assert text_of(events) == "12 boxes hold 84 eggs."
    assert calls_of(events) == [("calculator", {"expression": "12*7"})]


def test_two_calls_in_a_sentence() -> None:
    events = read("So [calculator(1+1) ->", " 2 and ", "[calculator(2+2) ->", " 4.")
    assert text_of(events) == "So 2 and 4."
    assert len(calls_of(events)) == 2


@given(st.lists(st.integers(0, 60), max_size=12))
def test_any_cut_gives_the_same_events(cuts: list[int]) -> None:
    text = "a [b] [calculator((1+2)*3) ->"
    edges = sorted({0, len(text), *(c % len(text) for c in cuts)})
    events = read(*(text[a:b] for a, b in itertools.pairwise(edges)))
    assert text_of(events) == "a [b] "
    assert calls_of(events) == [("calculator", {"expression": "(1+2)*3"})]


@pytest.mark.parametrize(
    "text", ["[calculator(12", "[calcul", "[calculator(1) - 2", "[", "a [b](c)"]
)
def test_brackets_that_are_no_call_stay_text(text: str) -> None:
    events = read(*text)
    assert text_of(events) == text
    assert not calls_of(events)


def test_text_is_not_held_back_without_need() -> None:
    assert text_of(read("hello there", end=False)) == "hello there"
    assert text_of(read("hello [calc", end=False)) == "hello "


def test_unreadable_arguments_are_malformed() -> None:
    malformed = [e for e in read("[convert(x+1, y) ->") if isinstance(e, CallMalformed)]
    assert len(malformed) == 1
    assert malformed[0].name == "convert"
    assert "literals" in malformed[0].reason


@pytest.mark.parametrize(
    ("tool", "raw", "expected"),
    [
        ("calculator", "12*7", {"expression": "12*7"}),
        ("calculator", "'12*7'", {"expression": "12*7"}),
        ("calculator", "12", {"expression": "12"}),
        ("calculator", "expression='1+1'", {"expression": "1+1"}),
        ("calculator", "max(1, 2)", {"expression": "max(1, 2)"}),
        ("convert", "5, 'km'", {"value": 5, "unit": "km"}),
        ("convert", "5, unit='km'", {"value": 5, "unit": "km"}),
        ("now", "", {}),
        ("now", "  ", {}),
    ],
)
def test_arguments(tool: str, raw: str, expected: dict[str, object]) -> None:
    assert inline_arguments(raw, SCHEMAS[tool]) == expected


@pytest.mark.parametrize(
    ("tool", "raw"), [("convert", "a, b"), ("convert", "1, 2, 3"), ("now", "1")]
)
def test_arguments_that_cannot_be_read(tool: str, raw: str) -> None:
    with pytest.raises(ValueError, match=r"literals|the tool takes"):
        inline_arguments(raw, SCHEMAS[tool])


@given(st.text(max_size=30))
def test_arguments_never_raise_anything_else(raw: str) -> None:
    for schema in SCHEMAS.values():
        with contextlib.suppress(ValueError):
            json.dumps(inline_arguments(raw, schema))


def test_results_cannot_close_the_bracket_early() -> None:
    assert inline_result("84") == " 84]"
    assert inline_result("84", overshoot=" ") == "84]"
    assert inline_result("a]b\nc  [d") == " a)b c (d]"


@pytest.mark.parametrize(
    "raw",
    [
        "x) for x in y]\n\ndef f(a: str",
        'query="a',
        "'it",
        'query="a \\" b',
        "a) and (b",
    ],
)
def test_an_arrow_that_is_not_the_calls_own_is_refused(raw: str) -> None:
    parser = InlineParser({"search": {"properties": {"query": {"type": "string"}}}}, lambda: "1")
    events = list(parser.push(f"[search({raw}) ->"))
    assert [type(event) for event in events] == [CallStarted, CallMalformed]


@pytest.mark.parametrize(
    "raw",
    [
        "what's up (really)",
        "",
        'query="a) b", other=(1, 2)',
        "'it\\'s' \"(\"",
        'query="""a) "b" """',
        "rock 'n' roll",
    ],
)
def test_an_arrow_behind_whole_arguments_ends_them(raw: str) -> None:
    check_end(raw)


def test_trees_that_python_mixes_up_are_built_again(mixed_up_trees: list[str]) -> None:
    read = inline_arguments("3, 'km'", SCHEMAS["convert"])
    assert read == {"value": 3, "unit": "km"}
    assert len(mixed_up_trees) == 3
