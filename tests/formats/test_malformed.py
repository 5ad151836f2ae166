"""Calls that are no good, and what only began like a call."""

import json

import pytest

from caesura.intercept.calls.watch import Verdict
from tests.formats.cases import ANCHORED, SEARCH, TOOLS, cuts
from tests.formats.rendering import ONE_AT_A_TIME, RENDER
from tests.formats.world import decode, stand_in

BROKEN = {
    "hermes": '<tool_call>{"name": "search", "arguments": {"query": </tool_call>',
    "qwen3_coder": "<tool_call>\nsearch(query)\n</tool_call>",
    "glm": "<tool_call>search(query)</tool_call>",
    "seed_oss": "<seed:tool_call>\nsearch(query)\n</seed:tool_call>",
    "minimax_m2": '<minimax:tool_call>\n<invoke name="search">oak\n</invoke></minimax:tool_call>',
    "deepseek_v32": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="search">\noak\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    ),
    "deepseek_v4": (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="search">\n<｜DSML｜parameter>oak\n'
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ),
    "deepseek_v41": (
        '<｜DSML｜ calls>\n<｜DSML｜ invoke name="search">\n<｜DSML｜parameter name="query">oak\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>"
    ),
    "longcat": '<longcat_tool_call>{"name": "search", "arguments": {"query": </longcat_tool_call>',
    "hunyuan_a13b": '<tool_calls>[{"name": "search", "arguments": {"query": }}]</tool_calls>',
    "internlm": (
        '<|action_start|><|plugin|>{"name": "search", "parameters": {"query": <|action_end|>'
    ),
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
    text = BROKEN[name]
    for model, tokens in cuts(name, text):
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
    good = RENDER[name]([SEARCH])
    text = good + BROKEN[name] if good_first else BROKEN[name] + good
    for model, tokens in cuts(name, text):
        for step in (1, 6, len(tokens)):
            outcome = decode(model, tokens, TOOLS, step)
            assert [(got, json.loads(raw)) for got, raw in outcome.calls] == [tuple(SEARCH)]
            assert len(outcome.malformed) == 1
            assert outcome.shown == ""


@pytest.mark.parametrize("name", ["hermes", "longcat", "internlm", "deepseek_v31", "kimi_k2"])
def test_a_quote_that_is_never_closed_costs_its_own_call_only(name: str) -> None:
    model, good = stand_in(name), RENDER[name]([SEARCH])
    broken = BROKEN[name].replace('"query": ', '"query": "oak')
    outcome = decode(model, model.by_bytes(broken + good), TOOLS)
    assert [(got, json.loads(raw)) for got, raw in outcome.calls] == [tuple(SEARCH)]
    assert len(outcome.malformed) == 1
