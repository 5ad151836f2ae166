"""Values that stand between tags as bare text: read whole or refused, in linear time."""

import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from caesura.scheduler.vllm.client.parsing.tagged import MAX_TAG_CHARACTERS, TAGS, TaggedCalls
from tests.formats.rendering import RENDER, Call
from tests.formats.world import Outcome, decode, stand_in, tool

WRITE = tool("write", path={"type": "string"}, text={"type": "string"}, mode={"type": "integer"})
PATH = Call("write", {"path": "a.html"})


def written(name: str, value: str) -> str:
    """A call as a model writes it that does not know what a value cannot hold."""
    text = RENDER[name]([Call("write", {"text": "VALUE", "mode": 7})])
    return text.replace("VALUE", value)


def read(name: str, text: str, step: int) -> Outcome:
    model = stand_in(name)
    return decode(model, model.by_bytes(text), [WRITE], step)


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("qwen3_coder", "a</parameter>b", "after </parameter>"),
        ("qwen3_coder", "<![CDATA[ a</parameter>b ]]>", "after </parameter>"),
        ("qwen3_coder", "a</parameter>\n</function>b", "after </function>"),
        ("qwen3_coder", "a\n<parameter=mode>\n1", "before the next <parameter="),
        ("qwen3_coder", "a\n</parameter>\n<parameter=text>\nb", "given twice"),
        ("minimax_m2", "a</parameter>b", "after </parameter>"),
        ("minimax_m2", 'a\n<parameter name="mode">1', "before the next <parameter name="),
        ("deepseek_v32", "a</｜DSML｜parameter>b", "after </｜DSML｜parameter>"),
        ("seed_oss", "a</parameter>\n</function>b", "after </function>"),
        ("glm", "a</arg_value>b", "after </arg_value>"),
        ("glm", "a</arg_value>\n<arg_key>text</arg_key>\n<arg_value>b", "given twice"),
    ],
)
def test_a_value_that_its_own_tag_cuts_is_refused(
    name: str, value: str, told: str, step: int
) -> None:
    outcome = read(name, written(name, value), step)
    assert not outcome.calls
    assert [call.name for call in outcome.malformed] == ["write"]
    assert told in outcome.malformed[0].reason
    assert "\n" not in outcome.malformed[0].reason
    assert outcome.shown == ""


@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_what_a_refused_value_quotes_is_never_run(step: int) -> None:
    quoted = f"</tool_call> or {RENDER['qwen3_coder']([PATH])}"
    outcome = read("qwen3_coder", written("qwen3_coder", quoted), step)
    assert not outcome.calls
    assert len(outcome.malformed) == 1


@pytest.mark.parametrize("step", [1, 5, 10_000])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("qwen3_coder", "a</function>b"),
        ("qwen3_coder", "<parameter>, </param> and <function=f> < tags"),
        ("qwen3_coder", "\n\ntwo lines above, one below\n"),
        ("qwen3_coder", ""),
        ("glm", "<arg_key>a</arg_key> and </tool_call>"),
        ("glm", "\n"),
        ("seed_oss", "\n\ntwo lines above, one below\n"),
        ("minimax_m2", "\n"),
        ("minimax_m2", "</minimax:tool_call> and <parameter>"),
        ("deepseek_v32", "\n<parameter name=</parameter>\n"),
        ("deepseek_v41", "a</｜DSML｜parameter>b"),
    ],
)
def test_other_tags_and_line_breaks_are_part_of_a_value(name: str, value: str, step: int) -> None:
    outcome = read(name, written(name, value), step)
    assert [json.loads(raw) for _, raw in outcome.calls] == [{"text": value, "mode": 7}]


def html(characters: int) -> str:
    row = '<tr><td class="x">1 &gt; 0</td></tr>\n'
    return row * (characters // len(row))


def steps_of(text: str, size: int) -> int:
    """How many lines of Python run while a call is read in pieces of `size` characters."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    outcome: Any = None
    model = stand_in("qwen3_coder")
    tokens = model.by_bytes(text)
    sys.settrace(trace)
    try:
        outcome = decode(model, tokens, [WRITE], size)
    finally:
        sys.settrace(None)
    assert len(outcome.calls) == 1
    return count


@pytest.mark.parametrize("size", [64, 10**9])
def test_ten_times_the_text_takes_ten_times_the_steps(size: int) -> None:
    small, large = (steps_of(written("qwen3_coder", html(n)), size) for n in (2_000, 20_000))
    assert large < 12 * small


@pytest.mark.parametrize("key", ["text", "mode"])
@pytest.mark.parametrize("name", TAGS)
def test_no_text_is_kept_to_be_looked_at_again(name: str, key: str) -> None:
    text = RENDER[name]([Call("write", {key: html(20_000)})])
    reader = TaggedCalls(TAGS[name], [WRITE])
    longest = 0
    for start in range(0, len(text), 7):
        for _ in reader.push(text[start : start + 7]):
            pass
        longest = max(longest, len(reader._window))
    assert longest < 60
    (found,) = reader.found(text)
    assert json.loads(found.arguments) == {key: html(20_000)}


@pytest.mark.parametrize("name", TAGS)
def test_nonsense_between_values_is_given_up_and_not_kept(name: str) -> None:
    reader = TaggedCalls(TAGS[name], [WRITE])
    for _ in range(10 * MAX_TAG_CHARACTERS):
        assert not list(reader.push("< "))
    assert len(reader._window) <= 2 * MAX_TAG_CHARACTERS
    with pytest.raises(ValueError, match="a tag is missing"):
        reader.found("")


@pytest.mark.parametrize("name", TAGS)
def test_a_long_value_is_announced_as_it_is_written(name: str) -> None:
    outcome = read(name, written(name, html(20_000)), 8)
    pieces = [len(each.text) for each in outcome.events if hasattr(each, "text")]
    assert max(pieces) < 60
    assert len(pieces) > 1_000


DEFS = {
    "Range": {"type": "object", "properties": {"first": {"type": "integer"}}},
    "Count": {"type": "integer"},
    "Level": {"enum": [1, 2, "high"]},
    "Chain": {"$ref": "#/$defs/Count"},
    "a/b ~c": {"type": "boolean"},
    "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "array"}]},
}
OF_V: list[tuple[dict[str, Any], str, Any]] = [
    ({"$ref": "#/$defs/Range"}, '{"first": 3}', {"first": 3}),
    ({"$ref": "#/$defs/Count"}, "7", 7),
    ({"$ref": "#/$defs/Level"}, "2", 2),
    ({"$ref": "#/$defs/Level"}, "high", "high"),
    ({"$ref": "#/$defs/Chain"}, "7", 7),
    ({"$ref": "#/$defs/a~1b%20~0c"}, "true", True),
    ({"$ref": "#/$defs/Tree"}, "[1]", [1]),
    ({"$ref": "#/definitions/Count"}, "7", 7),
    ({"anyOf": [{"$ref": "#/$defs/Range"}, {"type": "null"}]}, '{"first": 3}', {"first": 3}),
    ({"anyOf": [{"$ref": "#/$defs/Range"}, {"type": "null"}]}, "null", None),
    ({"oneOf": [{"$ref": "#/$defs/Count"}, {"type": "string"}]}, "seven", "seven"),
    ({"allOf": [{"$ref": "#/$defs/Count"}], "description": "how many"}, "7", 7),
    ({"allOf": [{"type": ["integer", "string"]}, {"type": "string"}]}, "7", "7"),
    ({"const": 5}, "5", 5),
    ({"const": "5"}, "5", "5"),
    ({"enum": ["1", 2]}, "1", "1"),
    ({"enum": [True, "1"]}, "1", True),
    ({"anyOf": [{"const": 5}, {"type": "string"}]}, "7", "7"),
    ({"type": ["string", "integer"]}, "7", 7),
    ({"type": "number"}, "1e3", 1000),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7.5", "7.5"),
    ({}, "7", "7"),
    ({"anyOf": [{}, {"type": "null"}]}, "7", "7"),
    ({"$ref": "#/$defs/Lost"}, "7", "7"),
    ({"$ref": "https://example.com/schema"}, "7", "7"),
]
"""Schemas of an argument, a text, and the value that the text is."""
AROUND: list[tuple[dict[str, Any], str, Any]] = [
    ({"allOf": [{"properties": {"v": {"type": "integer"}}}]}, "7", 7),
    ({"oneOf": [{"properties": {"v": {"type": "object"}}}, {"properties": {}}]}, "{}", {}),
    ({"if": {}, "then": {"properties": {"v": {"type": "integer"}}}}, "7", 7),
    ({"$ref": "#/$defs/All", "$defs": {"All": {"properties": {"v": {"const": 5}}}}}, "5", 5),
    ({"additionalProperties": {"type": "integer"}}, "7", 7),
    ({"additionalProperties": True}, "7", "7"),
    ({"properties": {"w": {"type": "integer"}}}, "7", "7"),
]
"""Schemas of all arguments, one of which is `v`."""
BY_ALL = [*(({"properties": {"v": schema}}, *rest) for schema, *rest in OF_V), *AROUND]
TAGGED_CALLS = {
    "qwen3_coder": "<parameter=v>\n{}\n</parameter>\n</function>\n</tool_call>",
    "seed_oss": "<parameter=v>\n{}\n</parameter>\n</function>\n</seed:tool_call>",
    "minimax_m2": '<parameter name="v">{}</parameter>\n</invoke>\n</minimax:tool_call>',
    "glm": "<arg_key>v</arg_key>\n<arg_value>{}</arg_value>\n</tool_call>",
}
"""How formats write the value of the only argument, without a word on its type."""


def value_read(name: str, parameters: dict[str, Any], text: str) -> Any:
    """The value of the argument `v` that a reader makes of a text in a call of the format."""
    begin = RENDER[name]([Call("write", {"v": "VALUE"})])
    at = TAGGED_CALLS[name].partition("{}")[0]
    written = begin[: begin.index(at)] + TAGGED_CALLS[name].replace("{}", text)
    specs = [{"type": "function", "function": {"name": "write", "parameters": parameters}}]
    reader = TaggedCalls(TAGS[name], specs)
    pieces = [piece.arguments for character in written for piece in reader.push(character)]
    arguments = reader.found(written)[0].arguments
    assert "".join(pieces) == arguments
    return json.loads(arguments)["v"]


@pytest.mark.parametrize("name", TAGGED_CALLS)
@pytest.mark.parametrize(("schema", "text", "value"), BY_ALL)
def test_a_value_is_what_the_resolved_schema_says(
    name: str, schema: dict[str, Any], text: str, value: Any
) -> None:
    parameters = {"type": "object", "$defs": DEFS, "definitions": DEFS, **schema}
    got = value_read(name, parameters, text)
    assert (got, type(got)) == (value, type(value))


LEAVES = st.sampled_from(
    [
        *({"type": kind} for kind in ("integer", "number", "boolean", "null", "object", "array")),
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"enum": [1, "one", None]},
        {"const": 3},
        {"const": "three"},
        {"$ref": "#/$defs/Count"},
        {"$ref": "#/$defs/Level"},
        {"$ref": "#/$defs/Chain"},
        {"$ref": "#/$defs/Range"},
    ]
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda parts: st.builds(
        lambda keyword, given: {keyword: given},
        st.sampled_from(["anyOf", "allOf"]),
        st.lists(parts, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
VALUES = st.sampled_from([0, 1, 2, 3, 7.5, True, None, "one", "three", "", {"first": 1}, {}, [1]])


@given(schema=SCHEMAS, value=VALUES)
@settings(max_examples=300, deadline=None)
def test_a_value_that_the_schema_takes_is_read_as_one_that_it_takes(
    schema: dict[str, Any], value: Any
) -> None:
    parameters = {"type": "object", "properties": {"v": schema}, "$defs": DEFS}
    takes = Draft202012Validator(parameters)
    if takes.is_valid({"v": value}):
        text = value if isinstance(value, str) else json.dumps(value)
        assert takes.is_valid({"v": value_read("glm", parameters, text)})


def test_references_that_multiply_are_each_followed_once() -> None:
    levels = {
        f"L{at}": {"anyOf": [{"$ref": f"#/$defs/L{at + 1}"}, {"$ref": f"#/$defs/L{at + 1}"}]}
        for at in range(60)
    }
    defs = {**levels, "L60": {"type": "integer"}}
    parameters = {"properties": {"v": {"$ref": "#/$defs/L0"}}, "$defs": defs}
    assert value_read("qwen3_coder", parameters, "7") == 7
