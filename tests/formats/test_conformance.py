"""Every format passes the same cases, however the text is cut into tokens."""

import json
from dataclasses import dataclass

import pytest

from caesura.intercept.events import ArgumentsDelta, CallStarted
from caesura.intercept.formats import TURN_FORMATS
from caesura.intercept.trigger import Verdict
from caesura.scheduler.vllm.client.parsing import turn_parser
from tests.formats.rendering import ONE_AT_A_TIME, RENDER, Call
from tests.formats.world import Outcome, StandIn, decode, stand_in, tool

TEXT = {"type": "string"}
TOOLS = [
    tool("search", query=TEXT),
    tool("search_web", query=TEXT),
    tool("now"),
    tool(
        "plan",
        title=TEXT,
        days={"type": "array"},
        rules={"type": "object"},
        ratio={"type": "number"},
        open={"type": "boolean"},
    ),
]
SEARCH = Call("search", {"query": "oak trees"})
NOW = Call("now", {})
PLAN = Call(
    "plan",
    {
        "title": 'a "quoted" \\ path\n\tand {braces} [too], it\'s',
        "days": [1, -2, [3.5, {"deep": [None, True, "é"]}], []],
        "rules": {"one": {"two": {"three": {"four": [{"five": "</end>"}]}}}, "none": {}},
        "ratio": 0.25,
        "open": False,
    },
)
WIDE = Call("search", {"query": 'Zürich — 東京 😀 مرحبا \\u00e9 "é" \\\\n C:\\temp'})

# Formats that are calls from the first character on have no text around them.
ANCHORED = {"llama3_json", "pythonic"}
BEFORE = "Let me see, <b>now</b> [1] {x}: "


@dataclass(frozen=True)
class Case:
    """Calls, and the text around them."""

    calls: tuple[Call, ...]
    before: str = ""
    after: str = ""


CASES = {
    "one": Case((SEARCH,)),
    "several": Case((SEARCH, NOW, PLAN, SEARCH)),
    "nested": Case((PLAN,)),
    "unicode": Case((WIDE,)),
    "no arguments": Case((NOW,)),
    "prefix of another name": Case((Call("search_web", {"query": "x"}), SEARCH)),
    "unknown tool": Case((Call("telephone", {"number": "12"}),)),
    "text before": Case((SEARCH,), before=BEFORE),
    "text before and after": Case((SEARCH,), before=BEFORE, after=" And so on."),
}


def written(name: str, case: Case) -> str:
    """The turn as a model of this format would write it."""
    before = case.before if name not in ANCHORED else ""
    after = case.after if name not in ANCHORED | ONE_AT_A_TIME else ""
    calls = case.calls[:1] if name in ONE_AT_A_TIME else case.calls
    text = RENDER[name](calls)
    if name == "harmony":
        shown = f"<|channel|>commentary<|message|>{before}<|end|><|start|>assistant"
        text = (shown if before else "") + text.removesuffix("<|call|>")
    return before * (name != "harmony") + text + after


def shown(name: str, case: Case) -> str:
    """What the reader should see of it."""
    before = case.before if name not in ANCHORED else ""
    if name == "react":
        return before + "\n"
    return before + (case.after if name not in ANCHORED | ONE_AT_A_TIME else "")


def cuts(model: StandIn, text: str) -> list[list[int]]:
    """Several tokenisations: by bytes with the family's special tokens, and without them."""
    ways = [model.by_bytes(text)]
    if model.name != "harmony":  # whose special tokens are never spelled out
        ways.append(model.spelled(text))
    return ways


def check(outcome: Outcome, name: str, case: Case) -> None:
    calls = case.calls[:1] if name in ONE_AT_A_TIME else case.calls
    assert [(got, json.loads(arguments)) for got, arguments in outcome.calls] == [
        (call.name, call.arguments) for call in calls
    ]
    assert not outcome.malformed
    assert outcome.shown == shown(name, case)
    assert outcome.verdict is Verdict.CALL


def expressible(name: str, case: Case) -> bool:
    """The in-line form opens at known tools only, so that a call of another one is prose."""
    return not (name == "inline" and case.calls[0].name == "telephone")


PAIRS = [
    pytest.param(name, case, id=f"{name}-{label}")
    for name in RENDER
    for label, case in CASES.items()
    if expressible(name, case)
]


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_calls_are_read_and_the_engine_stops_at_the_right_token(name: str, case: Case) -> None:
    model = stand_in(name)
    text = written(name, case)
    first: Outcome | None = None
    for tokens in cuts(model, text):
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
    model, case = stand_in(name), CASES["one"]
    text = written(name, case)
    for tokens in cuts(model, text):
        whole = decode(model, tokens, TOOLS, len(tokens) + 1)
        for at in range(1, len(tokens)):
            outcome = decode(model, tokens, TOOLS, at)
            assert outcome.summary == whole.summary
            assert outcome.read == whole.read


@pytest.mark.parametrize("name", RENDER)
def test_prose_is_prose(name: str) -> None:
    model = stand_in(name)
    prose = "No call: <tool, [search] {1} to=x. Action: run!\nAnd <|so|> on, é 😀."
    text = f"<|channel|>final<|message|>{prose}" if name == "harmony" else prose
    for tokens in cuts(model, text):
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
        check(decode(model, tokens, TOOLS, step), name, case)
    check(decode(model, model.by_bytes(text), TOOLS), name, case)


@pytest.mark.parametrize("name", ["inline"])
def test_an_arrow_ends_an_inline_call_wherever_it_stands(name: str) -> None:
    model = stand_in(name)
    outcome = decode(model, model.by_bytes('[search("a) -> b") -> c]'), TOOLS)
    assert outcome.read == len('[search("a) ->')
    assert [name for name, _ in outcome.calls] == ["search"]


BROKEN = {
    "hermes": '<tool_call>{"name": "search", "arguments": {"query": </tool_call>',
    "qwen3_coder": "<tool_call>\nsearch(query)\n</tool_call>",
    "glm": "<tool_call></tool_call>",
    "mistral": '[TOOL_CALLS][{"name": "search", "arguments": {"query": }}]',
    "mistral_v11": '[TOOL_CALLS]search[ARGS]{"query": }',
    "deepseek_v3": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n```json\n"
        '{"query": \n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "deepseek_v31": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>"
        '{"query": <｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "kimi_k2": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0"
        '<|tool_call_argument_begin|>{"query": <|tool_call_end|><|tool_calls_section_end|>'
    ),
    "harmony": '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": ',
    "react": 'Action: search\nAction Input: {"query": "}\n',
    "inline": "[plan(days=) ->",
    "llama3_json": '{"name": "search", "parameters": {"query": ',
    "pythonic": "[search(query=",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_call_is_told(name: str) -> None:
    model, text = stand_in(name), BROKEN[name]
    for tokens in cuts(model, text):
        for step in (1, 6, len(tokens)):
            outcome = decode(model, tokens, TOOLS, step)
            assert not outcome.calls
            assert len(outcome.malformed) == 1
            assert outcome.shown == ""
            assert outcome.malformed[0].name in ("search", "plan", None)
            assert "\n" not in outcome.malformed[0].reason
            assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3_json", '{"answer": 42}'),
        ("llama3_json", "{ braces }"),
        ("pythonic", "[1] says so, [search] too"),
        ("pythonic", "[search(the web)]"),
        ("inline", "[search(oak trees)"),
    ],
)
def test_what_only_began_like_a_call_is_prose(name: str, text: str) -> None:
    model = stand_in(name)
    for step in (1, 3, len(text)):
        outcome = decode(model, model.by_bytes(text), TOOLS, step)
        assert outcome.summary == [("text", text)]


SEVERAL = [name for name in RENDER if name not in {*ONE_AT_A_TIME, *ANCHORED, "mistral"}]


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("good_first", [True, False])
def test_a_good_call_beside_a_broken_one(name: str, good_first: bool) -> None:
    model, good = stand_in(name), RENDER[name]([SEARCH])
    text = good + BROKEN[name] if good_first else BROKEN[name] + good
    for tokens in cuts(model, text):
        for step in (1, 6, len(tokens)):
            outcome = decode(model, tokens, TOOLS, step)
            assert [(got, json.loads(raw)) for got, raw in outcome.calls] == [tuple(SEARCH)]
            assert len(outcome.malformed) == 1
            assert outcome.shown == ""


@pytest.mark.parametrize("name", ["hermes", "deepseek_v31", "kimi_k2"])
def test_a_quote_that_is_never_closed_costs_its_own_call_only(name: str) -> None:
    model, good = stand_in(name), RENDER[name]([SEARCH])
    broken = BROKEN[name].replace('"query": ', '"query": "oak')
    outcome = decode(model, model.by_bytes(broken + good), TOOLS)
    assert [(got, json.loads(raw)) for got, raw in outcome.calls] == [tuple(SEARCH)]
    assert len(outcome.malformed) == 1


@pytest.mark.parametrize("name", RENDER)
def test_huge_arguments(name: str) -> None:
    model = stand_in(name)
    case = Case((Call("search", {"query": 'x{"é' * 8_000}),))
    tokens = model.by_bytes(written(name, case))
    check(decode(model, tokens, TOOLS, step=16), name, case)


def test_mistrals_call_ids_are_no_part_of_the_name() -> None:
    model = stand_in("mistral_v11")
    text = '[TOOL_CALLS]search[CALL_ID]a1b2c3d4e[ARGS]{"query": "oak trees"}'
    for tokens in cuts(model, text):
        for step in (1, len(tokens)):
            check(decode(model, tokens, TOOLS, step), "mistral_v11", CASES["one"])


def test_harmonys_analysis_is_not_shown_and_its_recipient_may_stand_first() -> None:
    model = stand_in("harmony")
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>"
        "Let me look.<|end|><|start|>assistant to=functions.search<|channel|>commentary json"
        '<|message|>{"query": "oak trees"}'
    )
    outcome = decode(model, model.by_bytes(text), TOOLS)
    assert outcome.summary == [
        ("text", "Let me look."),
        ("call", "search", '{"query": "oak trees"}'),
    ]
    assert outcome.verdict is Verdict.CALL


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm", "deepseek_v31", "kimi_k2"])
def test_a_call_whose_closing_marker_is_missing_at_the_end_of_the_turn(name: str) -> None:
    model, row = stand_in(name), TURN_FORMATS[name]
    text = RENDER[name]([SEARCH]).removesuffix(row.section[1]).removesuffix(row.closes or "")
    for step in (1, len(text)):
        outcome = decode(model, model.by_bytes(text), TOOLS, step)
        assert len(outcome.calls) + len(outcome.malformed) == 1
        assert outcome.shown == ""


@pytest.mark.parametrize("name", ["hermes", "mistral", "deepseek_v31", "kimi_k2", "qwen3_coder"])
def test_calls_and_arguments_are_announced_while_they_are_written(name: str) -> None:
    model = stand_in(name)
    tokens = model.by_bytes(RENDER[name]([PLAN]))
    events = decode(model, tokens, TOOLS).events
    started = next(i for i, event in enumerate(events) if isinstance(event, CallStarted))
    pieces = [event for event in events[started:] if isinstance(event, ArgumentsDelta)]
    assert len(pieces) > 10


def test_a_model_without_the_formats_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="does not write mistral calls"):
        turn_parser(TURN_FORMATS["mistral"], stand_in("hermes").tokenizer, TOOLS)
    with pytest.raises(ValueError, match="does not write harmony calls"):
        turn_parser(TURN_FORMATS["harmony"], stand_in("hermes").tokenizer, TOOLS)
