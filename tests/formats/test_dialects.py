"""What one format has and no other."""

import pytest

from caesura.intercept.calls.formats import TURN_FORMATS
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.vllm.client.parsing import turn_parser
from tests.formats.cases import CASES, TOOLS, check, cuts
from tests.formats.world import decode, stand_in


def test_an_arrow_in_a_quote_ends_an_inline_call_which_is_refused() -> None:
    model = stand_in("inline")
    outcome = decode(model, model.by_bytes('[search("a) -> b") -> c]'), TOOLS)
    assert outcome.read == len('[search("a) ->')
    assert not outcome.calls
    assert outcome.malformed


def test_mistrals_call_ids_are_no_part_of_the_name() -> None:
    text = '[TOOL_CALLS]search[CALL_ID]a1b2c3d4e[ARGS]{"query": "oak trees"}'
    for model, tokens in cuts("mistral_v11", text):
        for step in (1, len(tokens)):
            check(decode(model, tokens, TOOLS, step), "mistral_v11", CASES["one"])


def test_harmonys_analysis_is_reasoning_and_its_recipient_may_stand_first() -> None:
    model = stand_in("harmony")
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "Let me look.<|end|><|start|>assistant to=functions.search<|channel|>commentary json"
        '<|message|>{"query": "oak trees"}'
    )
    outcome = decode(model, model.by_bytes(text), TOOLS)
    assert outcome.summary == [
        ("reasoning", "Hm."),
        ("text", "Let me look."),
        ("call", "search", '{"query": "oak trees"}'),
    ]
    assert outcome.verdict is Verdict.CALL


def test_a_model_without_the_formats_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="does not write mistral calls"):
        turn_parser(TURN_FORMATS["mistral"], stand_in("hermes").tokenizer, TOOLS)
    with pytest.raises(ValueError, match="does not write harmony calls"):
        turn_parser(TURN_FORMATS["harmony"], stand_in("hermes").tokenizer, TOOLS)


@pytest.mark.parametrize("step", [1, 10_000])
@pytest.mark.parametrize("recipient", ["python", "browser.search"])
def test_harmonys_built_in_tools_are_refused_and_the_model_is_told(
    recipient: str, step: int
) -> None:
    model = stand_in("harmony")
    text = f"<|channel|>analysis to={recipient} code<|message|>print(1)"
    outcome = decode(model, model.by_bytes(text), TOOLS, step)
    assert (outcome.calls, outcome.shown) == ([], "")
    assert [(call.name, call.text) for call in outcome.malformed] == [(recipient, "print(1)")]
    assert "there is no tool" in outcome.malformed[0].reason
    assert outcome.verdict is Verdict.CALL
