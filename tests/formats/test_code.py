"""Calls that an answer shows in code are text, where their openers are plain text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import SEARCH, TOOLS, check_prose
from tests.formats.rendering import RENDER
from tests.formats.world import decode, row_of, stand_in

PLAIN = [
    name
    for name in RENDER
    if (row := row_of(name)) != "harmony" and (row not in TURN_FORMATS or TURN_FORMATS[row].opens)
]
STEPS = (1, 2, 3, 5, 8, 1000)

SHOWN = [
    "So:\n```\n{}\n```\nis how it looks.",
    "So:\n  ~~~text\n{}\n  ~~~\nis how it looks.",
    "So:\n````\n```\n{}\n```\n````\nis how it looks.",
    "A fence without an end:\n```\n{}\nis how it looks.",
]


@pytest.mark.parametrize("text", SHOWN)
@pytest.mark.parametrize("name", PLAIN)
def test_a_call_in_a_fenced_block_is_text(name: str, text: str) -> None:
    model = stand_in(name).plain
    text = text.format(RENDER[name]([SEARCH]))
    tokens = model.spelled(text)
    for step in STEPS:
        outcome = decode(model, tokens, TOOLS, step)
        check_prose(outcome, text)


@pytest.mark.parametrize("name", [name for name in PLAIN if "\n" not in RENDER[name]([SEARCH])])
def test_a_call_in_a_code_span_is_text(name: str) -> None:
    model = stand_in(name).plain
    text = f"Write `{RENDER[name]([SEARCH])}` or ``{RENDER[name]([SEARCH])}``."
    tokens = model.spelled(text)
    for step in STEPS:
        outcome = decode(model, tokens, TOOLS, step)
        check_prose(outcome, text)


BEFORE = [
    "In ```code``` it is:\n",
    "```\ncode\n```\n",
    "A lone ` in a line.\n",
    "A `span` and ``a ` span``: ",
    "    ```\n",
]


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", PLAIN)
def test_a_call_behind_code_is_run(name: str, before: str) -> None:
    model = stand_in(name).plain
    tokens = model.spelled(before + RENDER[name]([SEARCH]))
    for step in STEPS:
        outcome = decode(model, tokens, TOOLS, step)
        assert [called for called, _ in outcome.calls] == ["search"]
        assert outcome.shown.strip() == before.strip()
        assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("name", PLAIN)
def test_code_within_a_call_or_before_thinking_hides_no_later_call(name: str) -> None:
    model, call = stand_in(name).plain, RENDER[name]([SEARCH])
    thought = "```\ncode\n<think>done</think>" + call
    assert [called for called, _ in decode(model, model.spelled(thought), TOOLS).calls] == [
        "search"
    ]
    if name not in ("react", "inline"):
        argument = call.replace("oak trees", "a ```")
        tokens = model.spelled(argument + call)
        assert len(decode(model, tokens, TOOLS, 4).calls) == 2


@pytest.mark.parametrize("name", ["hermes", "mistral", "kimi_k2"])
def test_an_opener_that_is_a_token_counts_in_code_too(name: str) -> None:
    model = stand_in(name)
    outcome = decode(model, model.by_bytes(f"```\n{RENDER[name]([SEARCH])}\n```"), TOOLS)
    assert [called for called, _ in outcome.calls] == ["search"]
    assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "react", "inline"])
def test_both_processes_agree_on_what_is_code(name: str) -> None:
    model, call = stand_in(name).plain, RENDER[name]([SEARCH])
    pieces = [call, "\n```\n", "```", "`", "~~~", "\n", "x", "  ", "<think>\n", "</think>", "{"]

    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.sampled_from(pieces), max_size=9), st.integers(1, 9))
    def check(parts: list[str], step: int) -> None:
        tokens = model.spelled("".join(parts))
        outcome, whole = decode(model, tokens, TOOLS, step), decode(model, tokens, TOOLS, 10_000)
        assert outcome.summary == whole.summary
        assert bool(outcome.calls or outcome.malformed) is (outcome.verdict is Verdict.CALL)

    check()
