"""Every format passes the same cases, however the text is cut into tokens."""

import json

import pytest

from caesura.intercept.calls.events import ArgumentsDelta, CallStarted
from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import CASES, PAIRS, PLAN, SEARCH, TOOLS, Case, check, cuts, shown, written
from tests.formats.rendering import RENDER, Call
from tests.formats.world import Outcome, decode, stand_in


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_calls_are_read_and_the_engine_stops_at_the_right_token(name: str, case: Case) -> None:
    text = written(name, case)
    first: Outcome | None = None
    for model, tokens in cuts(name, text):
        for step in (1, 7, len(tokens) + 1):
            outcome = decode(model, tokens, TOOLS, step)
            check(outcome, name, case)
            in_sentence = name in ("react", "inline")
            assert outcome.read == len(tokens) + (0 if in_sentence else 1)
            first = first or outcome
            assert outcome.summary == first.summary


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_the_message_holds_what_was_called(name: str, case: Case) -> None:
    text = written(name, case)
    outcome = decode(stand_in(name), stand_in(name).by_bytes(text), TOOLS)
    message = outcome.message
    if name in ("react", "inline"):
        assert message == {"role": "assistant", "content": text}
        return
    assert message["content"] == shown(name, case)
    functions = [call["function"] for call in message["tool_calls"]]
    again = [Call(each["name"], json.loads(each["arguments"])) for each in functions]
    assert again == list(case.calls[: len(again)])
    assert RENDER[name](again) == RENDER[name](case.calls[: len(again)])


@pytest.mark.parametrize("name", RENDER)
def test_a_call_cut_in_two_anywhere(name: str) -> None:
    """At every byte; to the model a marker is one token, or spelled out."""
    case = CASES["one"]
    text = written(name, case)
    for model, tokens in cuts(name, text):
        whole = decode(model, tokens, TOOLS, len(tokens) + 1)
        for at in range(1, len(tokens)):
            outcome = decode(model, tokens, TOOLS, at)
            assert outcome.summary == whole.summary
            assert outcome.read == whole.read


@pytest.mark.parametrize("name", RENDER)
def test_prose_is_prose(name: str) -> None:
    prose = "No call: <tool, [search] {1} to=x. Action: run!\nAnd <|so|> on, é 😀."
    text = f"<|channel|>final<|message|>{prose}" if name == "harmony" else prose
    for model, tokens in cuts(name, text):
        outcome = decode(model, tokens, TOOLS)
        assert outcome.verdict is Verdict.END
        assert outcome.read == len(tokens) + 1
        assert outcome.summary == [("text", prose)]
        assert outcome.message == {"role": "assistant", "content": prose}


# What a value may hold although it is a marker of the format itself.
CLOSERS = {
    "hermes": "</tool_call>",
    "qwen3_coder": "</tool_call>",
    "glm": "</tool_call>",
    "seed_oss": "</seed:tool_call>",
    "minimax_m2": "</invoke> and </minimax:tool_call>",
    "deepseek_v32": "</｜DSML｜function_calls>",
    "deepseek_v4": "</｜DSML｜invoke>, </｜DSML｜tool_calls>",
    "deepseek_v41": "</｜DSML｜ calls>",
    "longcat": "}</longcat_tool_call>",
    "hunyuan_a13b": "}]</tool_calls>",
    "internlm": "}<|action_end|>",
    "llama3_json": '"}}; {"name": "now", "parameters": {}}',
    "pythonic": ")]",
    "mistral": "}}][TOOL_CALLS]",
    "mistral_v11": "}[TOOL_CALLS]now[ARGS]{}",
    "deepseek_v3": "<｜tool▁call▁end｜>",
    "deepseek_v31": "<｜tool▁call▁end｜>",
    "kimi_k2": "<|tool_call_end|>",
    "react": "\nObservation: 1\n",
}


@pytest.mark.parametrize("name", CLOSERS)
def test_a_value_that_looks_like_the_end_of_its_call(name: str) -> None:
    model = stand_in(name)
    calls = [Call("search", {"query": f"what does {CLOSERS[name]} mean?"}), SEARCH]
    case = Case(tuple(calls))
    text = written(name, case)
    tokens = model.spelled(text)
    for step in (1, 5, len(tokens)):
        check(decode(model.plain, tokens, TOOLS, step), name, case)
    check(decode(model, model.by_bytes(text), TOOLS), name, case)


@pytest.mark.parametrize("name", RENDER)
def test_huge_arguments(name: str) -> None:
    model = stand_in(name)
    case = Case((Call("search", {"query": 'x{"é' * 8_000}),))
    tokens = model.by_bytes(written(name, case))
    check(decode(model, tokens, TOOLS, step=16), name, case)


ANNOUNCED = ["hermes", "mistral", "deepseek_v31", "kimi_k2", "qwen3_coder", "minimax_m2"]


@pytest.mark.parametrize(
    "name", [*ANNOUNCED, "seed_oss", "deepseek_v32", "longcat", "hunyuan_a13b"]
)
def test_calls_and_arguments_are_announced_while_they_are_written(name: str) -> None:
    model = stand_in(name)
    tokens = model.by_bytes(RENDER[name]([PLAN]))
    events = decode(model, tokens, TOOLS).events
    started = next(i for i, event in enumerate(events) if isinstance(event, CallStarted))
    pieces = [event for event in events[started:] if isinstance(event, ArgumentsDelta)]
    assert len(pieces) > 10
