"""Nonsense made of a format's own markers: never an exception, and the same events however cut."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.formats import resolve
from caesura.intercept.calls.vocabulary import Vocabulary
from caesura.intercept.calls.watch import Watch, WatchPlan
from caesura.scheduler.vllm.engine.calls import find_call
from tests.formats.cases import SEARCH, TOOLS
from tests.formats.rendering import RENDER
from tests.formats.world import MARKERS, decode, row_of, stand_in

PIECES = [
    *('{"name": "search", "arguments": {"query": "x"}}', '{"name": "now", "parameters": {}}'),
    *('{"query": "x"}', "{", "}", "[", "]", '"', "\\", ", ", ": ", "; ", "\n", " ", "é", "😀"),
    *("search", "now", "functions.search:0", "function", "text", "```json\n", "\n```", "1", ")"),
    *("<function=search>", "</function>", "<parameter=query>", "</parameter>", "<tool", "(", "->"),
    *("Action: search", "\nAction Input:", "Observation:", "[search(query='x')]", "search('", "="),
]
HARMONY = [
    *("<|channel|>", "<|message|>", "<|end|>", "<|start|>", "assistant", "analysis", "commentary"),
    *("final", " to=functions.search", "<|constrain|>", "json"),
]


@pytest.mark.parametrize("name", RENDER)
def test_any_text_is_read_to_its_end_alike(name: str) -> None:
    model = stand_in(name)
    form, *_ = resolve([row_of(name)], ["search", "now"])
    own = [*form.opens, *form.anchors, *form.section, form.closes or "", *MARKERS[name]]
    pieces = HARMONY if name == "harmony" else [each for each in own if each] * 2
    fragments = st.lists(st.sampled_from([*pieces, *PIECES]), max_size=14)

    @settings(max_examples=60, deadline=None)
    @given(fragments, st.integers(1, 9), st.booleans())
    def check(parts: list[str], step: int, spelled: bool) -> None:
        text = "".join(parts)
        spelled = spelled and name != "harmony"
        tokens = model.spelled(text) if spelled else model.by_bytes(text)
        whole = decode(model, tokens, TOOLS, len(tokens) + 1)
        outcome = decode(model, tokens, TOOLS, step)
        assert outcome.summary == whole.summary
        assert (outcome.read, outcome.verdict) == (whole.read, whole.verdict)

    check()


@pytest.mark.parametrize("name", [name for name in RENDER if name != "harmony"])
def test_tokens_that_hold_a_marker_and_more(name: str) -> None:
    """The engine's verdict falls on the token with the last byte, whatever else is in it."""
    row, text = row_of(name), "é: " * (name not in ("llama3_json", "pythonic"))
    data = (text + RENDER[name]([SEARCH]) + "\nmore").encode()
    end = len(data) - len("\nmore")
    in_sentence = row in ("react", "inline")

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(1, len(data) - 1), max_size=12))
    def check(cuts: list[int]) -> None:
        edges = sorted({0, len(data), *cuts})
        parts = [data[a:b] for a, b in itertools.pairwise(edges)]
        watch = Watch(WatchPlan((row,), ("search",)), Vocabulary([b"", *parts]), frozenset({0}))
        found = watch.first_stop([*range(1, len(parts) + 1), 0])
        assert found is not None
        assert found[1].value == "call"
        expected = next(i for i, edge in enumerate(edges[1:]) if edge >= end)
        assert found[0] == (expected if in_sentence else len(parts))
        if in_sentence:
            assert watch.overshoot == data[end : edges[found[0] + 1]]

    check()


@pytest.mark.parametrize("name", RENDER)
def test_the_engine_sees_which_tool_is_called(name: str) -> None:
    model, formats = stand_in(name), resolve([row_of(name)], ["search"])
    before = "" if name in ("llama3_json", "pythonic") else "Well. "
    tokens = model.by_bytes(before + RENDER[name]([SEARCH]))
    call = find_call(tokens, model.vocabulary, formats)
    assert call is not None and call.tool == "search"
    assert find_call(model.by_bytes("Nothing."), model.vocabulary, formats) is None
