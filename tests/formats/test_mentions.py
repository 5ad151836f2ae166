"""What an answer only mentions is no call: the text is shown whole, and nothing is run."""

import pytest

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import SEARCH, TOOLS, check_prose
from tests.formats.rendering import RENDER
from tests.formats.world import decode, row_of, stand_in

OPENED = [
    name
    for name in RENDER
    if (row := row_of(name)) != "harmony" and row in TURN_FORMATS and TURN_FORMATS[row].opens
]
SAYINGS = [
    "The opener is `{}`. It begins a call, and then comes the name.",
    "It writes {} and then the arguments: {{}}.",
    "```\n{}\n```\nThat is the opener.",
    "First {}",
]


@pytest.mark.parametrize("saying", SAYINGS)
@pytest.mark.parametrize("name", OPENED)
def test_an_opener_without_a_call_behind_it_is_text(name: str, saying: str) -> None:
    model, opener = stand_in(name), TURN_FORMATS[row_of(name)].opens[0]
    text = saying.format(opener)
    for tokens in (model.by_bytes(text), model.spelled(text)):
        for step in (1, 2, 5, len(tokens) + 1):
            outcome = decode(model, tokens, TOOLS, step)
            check_prose(outcome, text)


# Calls of `qwen3_coder` need no opener; the openers of the others are several tokens.
UNTOLD = {"qwen3_coder", "deepseek_v32", "deepseek_v4", "deepseek_v41", "internlm"}


@pytest.mark.parametrize("name", [name for name in OPENED if name not in UNTOLD])
def test_a_call_that_is_spelled_with_other_tokens_is_text(name: str) -> None:
    model, text = stand_in(name), f"So: {RENDER[name]([SEARCH])} is how it looks."
    tokens = model.spelled(text)
    for step in (1, 2, 5, len(tokens) + 1):
        outcome = decode(model, tokens, TOOLS, step)
        check_prose(outcome, text)


@pytest.mark.parametrize("name", [name for name in OPENED if name != "qwen3_coder"])
def test_a_call_that_a_grammar_has_spelled_is_run(name: str) -> None:
    model = stand_in(name)
    tokens = model.spelled(RENDER[name]([SEARCH]))
    for step in (1, 5, len(tokens) + 1):
        outcome = decode(model, tokens, TOOLS, step, spelled=True)
        assert [called for called, _ in outcome.calls] == ["search"]
        assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("name", OPENED)
def test_a_call_behind_a_mention_is_run(name: str) -> None:
    model, opener = stand_in(name), TURN_FORMATS[row_of(name)].opens[0]
    said = f"I write `{opener}`:\n"
    text = said + RENDER[name]([SEARCH])
    spelled = model.spelled(said) + model.by_bytes(RENDER[name]([SEARCH]))
    for tokens in (model.by_bytes(text), spelled):
        for step in (1, 2, 5, len(tokens) + 1):
            outcome = decode(model, tokens, TOOLS, step)
            assert [called for called, _ in outcome.calls] == ["search"]
            assert outcome.shown == said
            assert not outcome.malformed
            assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder"])
def test_an_argument_may_spell_the_opener(name: str) -> None:
    model = stand_in(name)
    text = RENDER[name]([SEARCH]).replace("oak trees", "what is <tool_call> for?")
    before, opener, behind = text.partition("<tool_call>")
    tokens = model.by_bytes(before + opener) + model.spelled(behind.partition("</tool")[0])
    tokens += model.by_bytes("</tool_call>")
    for step in (1, 3, len(tokens)):
        outcome = decode(model, tokens, TOOLS, step)
        assert outcome.calls[0][1] == '{"query": "what is <tool_call> for?"}'


def test_a_schema_of_a_call_is_shown() -> None:
    model, text = stand_in("hermes"), "It is <tool_call>{...}</tool_call>, in JSON."
    for step in (1, 4, 100):
        outcome = decode(model, model.by_bytes(text), TOOLS, step)
        assert outcome.summary == [("text", text)]


def test_text_behind_a_json_call_is_shown() -> None:
    model, behind = stand_in("llama3_json"), "\nI will tell you soon."
    text = RENDER["llama3_json"]([SEARCH, SEARCH]) + behind
    for step in (1, 5, len(text)):
        outcome = decode(model, model.by_bytes(text), TOOLS, step)
        assert [name for name, _ in outcome.calls] == ["search", "search"]
        assert outcome.shown == behind
