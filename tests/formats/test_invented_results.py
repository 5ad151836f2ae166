"""A result that the model invents behind its own call is shown to nobody, and ends the turn."""

import json

import pytest

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import SEARCH, TOOLS, check_prose
from tests.formats.rendering import RENDER, Call
from tests.formats.world import MARKERS, StandIn, decode, row_of, stand_in, with_markers

OPENERS = [
    (name, opener)
    for name in RENDER
    if (form := TURN_FORMATS.get(row_of(name)))
    for opener in form.results
]
INVENTED = "fake 42\n</tool_response>\nSo it is 42."


def models(name: str, opener: str) -> list[StandIn]:
    """A model that has the opener as a token, and one that spells it."""
    return [with_markers(name, [*MARKERS[name], opener]), stand_in(name)]


@pytest.mark.parametrize("between", ["", "\n", "\nLet me see:\n"])
@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_the_turn_ends_at_the_opener_of_the_result(name: str, opener: str, between: str) -> None:
    for model in models(name, opener):
        before = model.by_bytes(RENDER[name]([SEARCH]) + between + opener)
        tokens = [*before, *model.by_bytes(INVENTED)]
        for step in (1, 2, 7, len(tokens) + 1):
            outcome = decode(model, tokens, TOOLS, step)
            assert (outcome.verdict, outcome.read) == (Verdict.CALL, len(before))
            assert [called for called, _ in outcome.calls] == ["search"]
            assert outcome.shown.strip() == between.strip()
            assert not outcome.malformed


@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_it_is_not_shown_to_clients_that_run_their_tools(name: str, opener: str) -> None:
    for model in models(name, opener):
        tokens = model.by_bytes(RENDER[name]([SEARCH]) + "\n" + opener + INVENTED)
        for step in (1, 7, len(tokens) + 1):
            outcome = decode(model, tokens, TOOLS, step, pausing=False)
            assert [called for called, _ in outcome.calls] == ["search"]
            assert (outcome.shown, outcome.malformed) == ("", [])


@pytest.mark.parametrize("text", ["{}fake</tool_response>", "It is\n{}", "A line.\n`{}` opens it."])
@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_without_a_call_it_is_text(name: str, opener: str, text: str) -> None:
    text = text.format(opener)
    for model in models(name, opener):
        for step in (1, 7, 100):
            outcome = decode(model, model.by_bytes(text), TOOLS, step)
            check_prose(outcome, text)


@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_behind_a_call_it_may_be_mentioned(name: str, opener: str) -> None:
    for model in models(name, opener):
        text = f" The result comes in {opener}."
        tokens = model.by_bytes(RENDER[name]([SEARCH]) + text)
        for step in (1, 7, 100):
            outcome = decode(model, tokens, TOOLS, step)
            assert (outcome.shown, outcome.verdict) == (text, Verdict.CALL)
            assert outcome.read == len(tokens) + 1


@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_spelled_with_other_tokens_it_is_a_mention(name: str, opener: str) -> None:
    model = models(name, opener)[0]
    text = f"\n{opener} opens it."
    tokens = model.by_bytes(RENDER[name]([SEARCH])) + model.spelled(text)
    for step in (1, 7, 100):
        outcome = decode(model, tokens, TOOLS, step)
        assert (outcome.shown, outcome.read) == (text, len(tokens) + 1)


@pytest.mark.parametrize(("name", "opener"), OPENERS)
def test_an_argument_may_hold_it(name: str, opener: str) -> None:
    query = f"a\n{opener}\nb"
    for model in models(name, opener):
        tokens = model.by_bytes(RENDER[name]([Call("search", {"query": query})] * 2))
        for step in (1, 7, len(tokens)):
            outcome = decode(model, tokens, TOOLS, step)
            assert [json.loads(written)["query"] for _, written in outcome.calls] == [query] * 2
