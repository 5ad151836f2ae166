"""Grammars of calls against the harness of formats: what they allow is what the parsers read."""

import json
import random
from functools import cache
from typing import Any

import jsonschema
import numpy
import pytest
import xgrammar
from xgrammar.testing import _is_grammar_accept_string as allows

from caesura.intercept.calls.call_shapes import shape_of
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.messages import CallRule, Sampling
from caesura.scheduler.vllm.client.grammar import GrammarMaker

from .cases import CASES, ONE_AT_A_TIME
from .cases import TOOLS as CASES_TOOLS
from .rendering import RENDER
from .world import MARKERS, StandIn, decode, row_of, stand_in, with_markers

WALKS = 4
CLOSING = frozenset(b"\"'}])>\n")
"""Bytes that end values. A walk prefers them, and soon takes nothing else."""
MAX_FREE_TOKENS = 80
MAX_TOKENS = 800
NAMES = frozenset(tool["function"]["name"] for tool in CASES_TOOLS)
FORCED = Sampling(calls=CallRule(required=True))
STRICT = Sampling(calls=CallRule(strict=NAMES))
PLAN = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "unit": {"enum": ["km", "it's"]},
        "open": {"type": ["boolean", "null"]},
        "place": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "name": {"type": "string"}},
            "required": ["x"],
            "additionalProperties": False,
        },
    },
    "required": ["title", "unit"],
    "additionalProperties": False,
}
NOW = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {"plan": PLAN, "now": NOW}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]


def tag(name: str, tools: list[dict[str, Any]], sampling: Sampling) -> str:
    made = GrammarMaker([row_of(name)], stand_in(name).tokenizer, "").of_turn(tools, sampling, "")
    assert made is not None and made.structural_tag is not None
    return made.structural_tag


@pytest.mark.parametrize("name", RENDER)
def test_the_calls_of_templates_are_allowed(name: str) -> None:
    forced, strict = (
        xgrammar.Grammar.from_structural_tag(tag(name, CASES_TOOLS, sampling))
        for sampling in (FORCED, STRICT)
    )
    for label, case in CASES.items():
        calls = case.calls[:1] if name in ONE_AT_A_TIME else case.calls
        text = RENDER[name](calls).lstrip("\n")
        known = label != "unknown tool"
        assert allows(forced, text) == known, label
        # In line, a call of an unknown tool is prose.
        assert allows(strict, text) == (known or name == "inline"), label


# Walks of gpt-oss took minutes for a reason not found; `test_forced.py` reads its call.
@pytest.mark.parametrize("name", [name for name in RENDER if name != "harmony"])
def test_what_a_grammar_writes_is_read(name: str) -> None:
    model = _with_closing_tags(name)
    info = xgrammar.TokenizerInfo.from_huggingface(
        model.tokenizer, vocab_size=len(model.vocabulary)
    )
    compiled = xgrammar.GrammarCompiler(info).compile_structural_tag(tag(name, TOOLS, FORCED))
    for seed in range(WALKS):
        tokens = _walk(xgrammar.GrammarMatcher(compiled), model, random.Random(seed))
        outcome = decode(model, tokens, TOOLS, step=5, spelled=True)
        text = b"".join(map(model.vocabulary.bytes_of, tokens))
        assert outcome.calls and not outcome.malformed, text
        assert outcome.verdict is Verdict.CALL, text
        for called, arguments in outcome.calls:
            # White space around a value between tags is part of its text.
            given = json.loads(arguments, object_hook=_stripped)
            jsonschema.validate(given, SCHEMAS[called])


def _stripped(given: dict[str, Any]) -> dict[str, Any]:
    return {key: each.strip() if isinstance(each, str) else each for key, each in given.items()}


def _with_closing_tags(name: str) -> StandIn:
    """The stand-in of the family, with tokens for the tags that a walk by bytes would not hit."""
    form = shape_of(row_of(name))
    further = {
        "qwen_xml": ["</parameter>"],
        "minimax_xml": ["</parameter>"],
        "deepseek_xml": ["</｜DSML｜parameter>"],
        "deepseek_v4_1_xml": ["</｜DSML｜ parameter>"],
    }
    return with_markers(name, [*MARKERS[name], *further.get(form.style if form else "", [])])


def _walk(matcher: Any, model: StandIn, source: random.Random) -> list[int]:
    """Return a turn of random tokens that the matcher allows."""
    size, tokens, end = len(model.vocabulary), [], model.tokenizer.eos_token_id
    mask = xgrammar.allocate_token_bitmask(1, size)
    while len(tokens) < MAX_TOKENS:
        matcher.fill_next_token_bitmask(mask)
        bits = numpy.unpackbits(mask.numpy().view(numpy.uint8)[0], bitorder="little")[:size]
        over = len(tokens) > MAX_FREE_TOKENS
        if bits[end] and (over or bits.sum() == 1 or source.random() < 0.3):
            return tokens
        sums = numpy.cumsum(bits * _weights(model, over))
        token = int(numpy.searchsorted(sums, source.random() * sums[-1], side="right"))
        assert matcher.accept_token(token)
        tokens.append(token)
    raise AssertionError(b"".join(map(model.vocabulary.bytes_of, tokens)))


@cache
def _weights(model: StandIn, over: bool) -> Any:
    weights = numpy.zeros(len(model.vocabulary))
    for byte, token in enumerate(model.byte_ids):
        weights[token] = 1 if 32 <= byte < 127 else 0.1
        if byte in CLOSING:
            weights[token] = 1000 if over else 12
    weights[list(model.tokenizer.added_tokens_decoder)] = 10_000 if over else 2
    if "｜DSML｜" in MARKERS[model.name]:  # it stands in tags that open and in tags that close
        weights[model.tokenizer.convert_tokens_to_ids("｜DSML｜")] = 1
        weights[model.byte_ids[ord("/")]] = 1000 if over else 12
    weights[model.tokenizer.eos_token_id] = 0
    return weights
