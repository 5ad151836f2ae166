"""Calls that a grammar makes a model write: the grammar allows them, and the parsers read them."""

import json
from typing import Any

import pytest
from vllm.sampling_params import StructuredOutputsParams
from xgrammar import Grammar
from xgrammar.testing import _is_grammar_accept_string as allows

from caesura.intercept.calls.call_shapes import NAME, NUMBER, CallShape, shape_of
from caesura.intercept.calls.watch import Verdict
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import CallRule, InputGrammar, Sampling, TextFormat
from caesura.scheduler.vllm.client.grammar import GrammarMaker, single_spaced
from caesura.scheduler.vllm.client.structural_tags import in_json

from .rendering import kind
from .world import MARKERS, decode, row_of, stand_in

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {}}}
TOOLS = [WEATHER, CLOCK]
ARGUMENTS: dict[str, Any] = {"city": "Bern", "days": 3}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORCED = Sampling(calls=CallRule(required=True))
ONE = Sampling(calls=CallRule(required=True, single=True))
OR_SCHEMA = Sampling(text=TextFormat("json_schema", SCHEMA))
STRICT = Sampling(calls=CallRule(strict=frozenset({"weather"})))
NAMED = Sampling(calls=CallRule(required=True, names=("clock",)))


def shape(name: str) -> CallShape:
    found = shape_of(row_of(name), has_args_token=name == "mistral_v11")
    assert found is not None
    return found


FORMS = list(MARKERS)
TAGS = {
    "minimax_xml": ("", False),
    "deepseek_xml": ("｜DSML｜", True),
    "deepseek_v4_1_xml": ("｜DSML｜ ", True),
}
"""What begins the tags of calls, and whether they say that a value is a text, by the style."""


def maker(name: str, template: str = "") -> GrammarMaker:
    tokenizer = stand_in(name).tokenizer
    tokenizer.chat_template = template
    return GrammarMaker([row_of(name)], tokenizer, template)


def grammar(name: str, sampling: Sampling, opener: str = "", template: str = "") -> Grammar:
    made = maker(name, template).of_turn(TOOLS, sampling, opener)
    assert made is not None and made.structural_tag is not None
    return Grammar.from_structural_tag(made.structural_tag)


def call(name: str, tool: str, arguments: dict[str, Any]) -> str:
    form = shape(name)
    body = json.dumps(arguments, ensure_ascii=False)
    if form.style == "qwen_xml":
        given = arguments.items()
        body = "\n".join(f"<parameter={key}>\n{value}\n</parameter>" for key, value in given)
    elif form.style == "glm_xml":
        body = "\n".join(
            f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"
            for key, value in arguments.items()
        )
    elif form.style in TAGS:
        tag, typed = TAGS[form.style]
        body = "\n".join(
            f'<{tag}parameter name="{key}"{kind(value) if typed else ""}>{value}</{tag}parameter>'
            for key, value in arguments.items()
        )
    elif form.style == "python":
        body = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return form.begin.replace(NAME, tool).replace(NUMBER, "0") + body + form.end


def turn(name: str, *calls: str) -> str:
    form = shape(name)
    return form.before + (form.between or "").join(calls) + form.after


def answer(name: str, text: str) -> str:
    return f"<|channel|>final<|message|>{text}" if name == "harmony" else text


def preamble(name: str, text: str) -> str:
    if name == "harmony":
        return f"<|channel|>commentary<|message|>{text}<|end|><|start|>assistant"
    return text


@pytest.mark.parametrize("name", FORMS)
def test_a_forced_call_is_read(name: str) -> None:
    text = turn(name, call(name, "weather", ARGUMENTS))
    assert allows(grammar(name, FORCED), text)
    model = stand_in(name)
    outcome = decode(model, model.by_bytes(text.removesuffix("<|call|>")), TOOLS)
    ((called, arguments),) = outcome.calls
    assert (called, json.loads(arguments)) == ("weather", ARGUMENTS)
    assert outcome.verdict is Verdict.CALL
    # The line that names the tool is text in ReAct, as its models' thoughts are.
    assert not outcome.shown.removeprefix("Action: weather").strip()


@pytest.mark.parametrize("name", FORMS)
def test_what_a_forced_turn_may_not_hold(name: str) -> None:
    forced = grammar(name, FORCED)
    good = call(name, "weather", ARGUMENTS)
    assert not allows(forced, "Hello.")
    assert not allows(forced, "Hello. " + turn(name, good))
    assert not allows(forced, turn(name, call(name, "weather", {"town": "Bern"})))
    assert not allows(forced, turn(name, call(name, "other", {})))
    form = shape(name)
    two = turn(name, good, good)
    assert allows(forced, two) == (form.between is not None)
    assert not allows(grammar(name, ONE), two)
    assert allows(grammar(name, NAMED), turn(name, call(name, "clock", {})))
    assert not allows(grammar(name, NAMED), turn(name, good))


@pytest.mark.parametrize("name", FORMS)
def test_calls_or_the_format(name: str) -> None:
    made = grammar(name, OR_SCHEMA)
    assert allows(made, answer(name, '{"a": 1}'))
    assert allows(made, turn(name, call(name, "weather", {"city": 1})))
    assert not allows(made, answer(name, "Hello."))
    assert not allows(made, answer(name, '{"a": "x"}'))


@pytest.mark.parametrize("name", FORMS)
def test_strict_tools_leave_text_free(name: str) -> None:
    made = grammar(name, STRICT)
    good = turn(name, call(name, "weather", ARGUMENTS))
    assert allows(made, answer(name, "Hello, who are you? [1]"))
    assert allows(made, good)
    if name != "pythonic":  # whose calls stand at the begin of a turn
        assert allows(made, preamble(name, "Hello.\n") + good)
    assert not allows(made, turn(name, call(name, "weather", {"town": "Bern"})))
    assert allows(made, turn(name, call(name, "clock", {"any": "thing"})))


LOST = {
    "type": "function",
    "function": {
        "name": "lost",
        "parameters": {
            "type": "object",
            "properties": {"r": {"type": "object", "properties": {"x": {"$ref": "#/$defs/F"}}}},
        },
    },
}
"""A tool whose schema has a reference that leads nowhere."""


def test_a_schema_without_a_grammar_spoils_no_other_tool() -> None:
    params = maker("hermes").of_turn([WEATHER, LOST], FORCED, "")
    assert params is not None and params.structural_tag is not None
    made = Grammar.from_structural_tag(params.structural_tag)
    assert allows(made, turn("hermes", call("hermes", "lost", {"any": "thing"})))
    assert allows(made, turn("hermes", call("hermes", "weather", ARGUMENTS)))
    assert not allows(made, turn("hermes", call("hermes", "weather", {"town": "Bern"})))


def test_a_strict_tool_without_a_grammar_is_named_with_the_reason() -> None:
    strict = Sampling(calls=CallRule(strict=frozenset({"lost"})))
    with pytest.raises(UsageError, match=r"strict tool 'lost' cannot be enforced: .*#/\$defs/F$"):
        maker("hermes").of_turn([WEATHER, LOST], strict, "")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (TextFormat("regex", "["), "the regex of the answer cannot be enforced: .*Unclosed '\\['"),
        (TextFormat("grammar", "root ::= ("), "the grammar of the answer cannot be enforced: EBNF"),
        (
            TextFormat("json_schema", LOST["function"]["parameters"]),
            "the JSON schema of the output format cannot be enforced: Cannot find field",
        ),
    ],
)
def test_an_answer_without_a_grammar_is_told_with_the_reason(
    form: TextFormat, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        maker("hermes").of_turn(TOOLS, Sampling(text=form), "")


@pytest.mark.parametrize("backend", ["guidance", "outlines"])
def test_another_backend_has_no_grammars_of_calls(backend: str) -> None:
    made = GrammarMaker([row_of("hermes")], stand_in("hermes").tokenizer, "", backend=backend)
    for sampling in (FORCED, OR_SCHEMA, STRICT):
        with pytest.raises(UsageError, match=rf"need XGrammar, .* the backend '{backend}'"):
            made.of_turn(TOOLS, sampling, "")
    alone = made.of_turn([], OR_SCHEMA, "")
    assert alone is not None and alone.json == SCHEMA
    anything = made.of_turn([], Sampling(text=TextFormat("json_object")), "")
    assert anything is not None and anything.json_object


def test_a_format_without_a_shape_refuses_to_be_forced() -> None:
    unknown = GrammarMaker(["vllm:jamba"], stand_in("hermes").tokenizer, "")
    for sampling in (FORCED, OR_SCHEMA, STRICT):
        with pytest.raises(UsageError, match="vllm:jamba"):
            unknown.of_turn(TOOLS, sampling, "")
    assert unknown.of_turn(TOOLS, Sampling(), "") is None


@pytest.mark.parametrize("name", ["inline", "react", "harmony"])
def test_formats_that_stop_at_each_call_need_no_grammar_for_one(name: str) -> None:
    assert maker(name).of_turn(TOOLS, Sampling(calls=CallRule(single=True)), "") is None


def test_thinking_comes_before_what_is_forced() -> None:
    text = turn("qwen3_coder", call("qwen3_coder", "weather", ARGUMENTS))
    opened = grammar("qwen3_coder", FORCED, opener="<think>")
    assert allows(opened, f"I could call <tool_call>.\n</think>\n\n{text}")
    assert not allows(opened, text)
    may = grammar("qwen3_coder", FORCED, template="... <think> ...")
    assert allows(may, text)
    assert allows(may, f"<think>\nHm.\n</think>\n\n{text}")
    assert not allows(may, f"Hm.\n</think>\n\n{text}")
    assert not allows(grammar("qwen3_coder", FORCED), f"<think>\nHm.\n</think>\n\n{text}")


def test_a_call_that_thinking_mentions_is_free() -> None:
    """What is thought is no call; behind it a call must follow the schema of a strict tool."""
    good = turn("hermes", call("hermes", "weather", ARGUMENTS))
    bad = turn("hermes", call("hermes", "weather", {"town": "Bern"}))
    for opener, begin in (("", "<think>\n"), ("<think>", "")):
        made = grammar("hermes", STRICT, opener, template="... <think> ...")
        assert allows(made, f"{begin}I could write <tool_call>, or not.\n</think>\n\n{good}")
        assert not allows(made, f"{begin}Hm.\n</think>\n\n{bad}")


def test_messages_before_a_call_in_channels() -> None:
    analysis = "<|channel|>analysis<|message|>I call.<|end|><|start|>assistant"
    good = turn("harmony", call("harmony", "weather", ARGUMENTS))
    assert allows(grammar("harmony", FORCED), analysis + good)
    assert not allows(grammar("harmony", FORCED), preamble("harmony", "Hello.") + good)
    assert not allows(grammar("harmony", FORCED), answer("harmony", "Hello."))
    assert allows(grammar("harmony", STRICT), analysis + answer("harmony", "Hello."))


def test_names_that_python_does_not_allow_are_refused() -> None:
    odd = {"type": "function", "function": {"name": "get-time", "parameters": {}}}
    with pytest.raises(UsageError, match="'get-time' has no Python name"):
        maker("pythonic").of_turn([odd], FORCED, "")
    schema = {"type": "object", "properties": {"from": {}}, "required": ["from"]}
    function = {"name": "ride", "parameters": schema}
    with pytest.raises(UsageError, match="argument 'from' is no Python name"):
        maker("inline").of_turn([{"type": "function", "function": function}], FORCED, "")


def test_a_tool_that_may_not_be_called_is_not_called_in_line() -> None:
    made = grammar("inline", Sampling(calls=CallRule(names=("clock",))))
    assert allows(made, "It is [clock() ->")
    assert not allows(made, "In [weather(city='Bern') ->")
    none = grammar("inline", Sampling(calls=CallRule(names=())))
    assert allows(none, "It is [1].") and not allows(none, "It is [clock() ->")


def test_white_space_in_json_has_an_end() -> None:
    """Small models write it until the token limit otherwise."""
    made = maker("hermes").of_turn((), OR_SCHEMA, "")
    assert made is not None and made.structural_tag is not None
    whole = Grammar.from_structural_tag(made.structural_tag)
    assert allows(whole, '{"a":\n      1}')
    assert not allows(whole, '{"a":' + " " * 40 + "1}")


def test_vllm_gets_the_schemas_that_xgrammar_cannot_enforce() -> None:
    odd = TextFormat("json_schema", {"type": "integer", "multipleOf": 3})
    made = maker("hermes").of_turn((), Sampling(text=odd), "")
    assert made is not None and made.json == odd.value


def test_a_format_is_that_of_the_final_channel() -> None:
    made = maker("harmony").of_turn((), OR_SCHEMA, "")
    assert made is not None and made.structural_tag is not None
    whole = Grammar.from_structural_tag(made.structural_tag)
    final = '<|channel|>final<|message|>{"a": 1}'
    assert allows(whole, final)
    assert allows(whole, f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{final}")
    assert not allows(whole, '{"a": 1}')


def test_no_tool_may_be_called() -> None:
    nothing = Sampling(calls=CallRule(names=()))
    made = grammar("hermes", nothing)
    assert allows(made, "Hello.")
    assert not allows(made, turn("hermes", call("hermes", "clock", {})))
    with pytest.raises(UsageError, match="no tool may be called"):
        maker("hermes").of_turn(TOOLS, Sampling(calls=CallRule(required=True, names=())), "")


def test_names_are_escaped_where_they_are_json() -> None:
    odd = {"type": "function", "function": {"name": 'a"b', "parameters": {}}}
    made = maker("hermes").of_turn([odd], FORCED, "")
    assert made is not None and made.structural_tag is not None
    text = '<tool_call>\n{"name": "a\\"b", "arguments": {}}\n</tool_call>'
    assert allows(Grammar.from_structural_tag(made.structural_tag), text)


def test_json_that_vllm_was_asked_for_takes_single_spaces() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for given in ({"json": schema}, {"json": json.dumps(schema)}, {"json_object": True}):
        tag = single_spaced(StructuredOutputsParams(**given)).structural_tag
        assert tag is not None
        rules = Grammar.from_structural_tag(tag)
        for text in ('{"a": 1}', '{"a":1}', '{ "a": 1 }'):
            assert allows(rules, text)
        assert not allows(rules, '{"a":  1}') and not allows(rules, "[]")
    odd = {"type": "integer", "multipleOf": 3}
    made = single_spaced(StructuredOutputsParams(json=odd)).json
    assert made == {**odd, "x-guidance": {"whitespace_flexible": False}}
    lost = {"type": "object", "properties": {"a": {"$ref": "#/$defs/Lost"}}}
    for stays in (
        {"regex": "a"},
        {"json": lost},
        {"json": "no schema"},
        {"json": schema, "whitespace_pattern": " "},
        {"json": schema, "disable_any_whitespace": True},
    ):
        params = StructuredOutputsParams(**stays)
        assert single_spaced(params) is params


TOPS = [
    ({"type": "array", "items": SCHEMA}, '[{"a": 1}, {"a": 2}]', '[{"b": 1}]'),
    ({"anyOf": [SCHEMA, {"type": "integer"}]}, "7", '"b"'),
    ({"type": "string", "enum": ["x", "y"]}, '"x"', '"z"'),
    ({"type": "boolean"}, "true", "1"),
]


@pytest.mark.parametrize("name", FORMS)
def test_an_answer_beside_tools_may_be_any_json(name: str) -> None:
    """Nothing needs to be wrapped in an object, and the list is read as text."""
    for schema, fits, other in TOPS:
        rules = grammar(name, Sampling(text=TextFormat("json_schema", schema)))
        assert allows(rules, answer(name, fits))
        assert not allows(rules, answer(name, other))
        assert allows(rules, turn(name, call(name, "weather", ARGUMENTS)))
        model = stand_in(name)
        outcome = decode(model, model.by_bytes(answer(name, fits)), TOOLS)
        assert (outcome.calls, outcome.verdict is Verdict.CALL) == ([], False)


@pytest.mark.parametrize(("compact", "most"), [(True, 1), (False, 8)])
def test_white_space_in_the_json_of_an_answer_is_bounded(compact: bool, most: int) -> None:
    model = stand_in("hermes")
    made = GrammarMaker([row_of("hermes")], model.tokenizer, "", compact)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for tools in ((), TOOLS):
        found = made.of_turn(tools, Sampling(text=TextFormat("json_schema", schema)), "")
        assert found is not None and found.structural_tag is not None
        rules = Grammar.from_structural_tag(found.structural_tag)
        for spaces in (0, 1, most, most + 1, 20):
            text = f'{{"a":{" " * spaces}1}}'
            assert allows(rules, text) == (spaces <= most)


PATCHES = InputGrammar(
    "lark",
    r"""
start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?
hunk: "*** Add File: " /(.+)/ LF ("+" /(.*)/ LF)+
%import common.LF
""",
)
PATCH = '*** Begin Patch\n*** Add File: a "b".py\n+x = "1\\n"\t\x00😀é\n+\n*** End Patch\n'
CODES = InputGrammar("regex", r'\d{2}-[^a-c"]*[\]\-é].')
READ = {
    "lark": Grammar.from_lark,
    "regex": Grammar.from_regex,
}
INPUTS = [
    *((PATCHES, text) for text in (PATCH, PATCH[1:], PATCH[:-1], PATCH.replace("+", "-"), "")),
    *((CODES, text) for text in ("12-xy]z", '12-x\\y-"', "12-a]z", "12-\n-é", "12-\x7f\r]\\")),
    *((InputGrammar("regex", r"[\s\S]*"), text) for text in ("", PATCH, '"}', "\ud7ff\U0010ffff")),
    *((InputGrammar("regex", r"[a\\-^\]]+"), text) for text in ("a\\]^", "b", "-", "_")),
]


@pytest.mark.parametrize(("grammar", "text"), INPUTS)
def test_a_text_in_json_is_allowed_if_the_text_is(grammar: InputGrammar, text: str) -> None:
    allowed = allows(READ[grammar.syntax](grammar.definition), text)
    within = Grammar.from_ebnf(in_json(grammar))
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    assert allows(within, escaped) == allowed
    assert not allows(within, escaped + '"')  # it would end the string


PATCHER = {
    "type": "function",
    "function": {
        "name": "patch",
        "parameters": {
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
        },
    },
}


@pytest.mark.parametrize("name", [each for each in FORMS if shape(each).style == "json"])
@pytest.mark.parametrize("required", [True, False])
def test_a_call_holds_a_text_of_its_grammar(name: str, required: bool) -> None:
    made = maker(name)
    made.check_input(PATCHES)
    rule = CallRule(required=required, inputs={"patch": PATCHES})
    grammar = made.of_turn([PATCHER, CLOCK], Sampling(calls=rule), "")
    assert grammar is not None and grammar.structural_tag is not None
    read = Grammar.from_structural_tag(grammar.structural_tag)
    assert allows(read, turn(name, call(name, "patch", {"input": PATCH})))
    assert not allows(read, turn(name, call(name, "patch", {"input": "no"})))


@pytest.mark.parametrize("name", [each for each in FORMS if shape(each).style != "json"])
def test_a_format_without_a_place_for_a_grammar_says_so(name: str) -> None:
    with pytest.raises(UsageError, match="format of calls"):
        maker(name).check_input(PATCHES)


@pytest.mark.parametrize("wrong", ["start: (", "start: other", 'start: "a" | start "b" %'])
def test_a_grammar_that_cannot_be_read_says_so(wrong: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        maker("hermes").check_input(InputGrammar("lark", wrong))
