"""The parts of a structural tag: calls, texts in a format, and thinking.

A structural tag is JSON that describes what a model may write (Dong et al. 2024, XGrammar).
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from caesura.intercept.calls.call_shapes import NAME, NUMBER, CallShape
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import TextFormat, ToolSpec
from caesura.scheduler.vllm.client.grammars.basic import Part, constant, either, optional, sequence
from caesura.scheduler.vllm.client.grammars.python_arguments import PythonArguments, is_python_name

MAX_ARGUMENT_SPACES = 2
"""White space in a row within a call's arguments, since some models write it without end."""
MAX_TEXT_SPACES = 8
"""White space in a row within the JSON of an answer, which models may indent."""
MAX_COMPACT_SPACES = 1
"""White space in a row where JSON shall be compact, as most models write it."""

ANY_TEXT: Part = {"type": "any_text"}
SPACES: Part = {"type": "regex", "pattern": r"[ \n]{0,4}"}


def call(shape: CallShape, tool: ToolSpec, strict: Collection[str]) -> Part:
    """Return one call of a tool, with arguments of its schema if its name is in `strict`.

    Raises `UsageError` for names that the format cannot write.
    """
    name = str(tool["function"]["name"])
    arguments = _arguments(shape, tool, name in strict)
    begin, *rest = _begin(shape, name).split(NUMBER)
    parts = [arguments]
    for text in rest:
        parts[:0] = [{"type": "regex", "pattern": "[0-9]{1,3}"}, constant(text)]
    # Without arguments, only one of the line breaks at their two ends is written.
    ends = [shape.end] if shape.style == "json" else [shape.end, shape.end.lstrip("\n")]
    return {"type": "tag", "begin": begin, "content": sequence(parts), "end": ends}


def _begin(shape: CallShape, name: str) -> str:
    """Return the text before the arguments of a call, with the name as the format writes it."""
    if f'"{NAME}"' in shape.begin:
        name = json.dumps(name, ensure_ascii=False)[1:-1]
    return shape.begin.replace(NAME, name)


def _arguments(shape: CallShape, tool: ToolSpec, strict: bool) -> Part:
    given = tool["function"].get("parameters") or {"type": "object", "properties": {}}
    if shape.style == "python":
        name = str(tool["function"]["name"])
        if not is_python_name(name):
            raise UsageError(
                f"the tool {name!r} has no Python name, so that this model's format cannot write"
                " a call of it; rename it"
            )
        made = PythonArguments(shape.bars_arrow)
        return made.of_schema(given) if strict else made.of_names(given.get("properties", ()))
    schema = given if strict else {"type": "object"}
    arguments: Part = {
        "type": "json_schema",
        "json_schema": schema if shape.style == "json" else with_items(schema),
        "style": shape.style,
        "max_whitespace_cnt": MAX_ARGUMENT_SPACES,
    }
    if shape.excludes and not _bounds_lengths(schema):
        arguments["excludes"] = list(shape.excludes)
    return arguments


def _bounds_lengths(schema: Any) -> bool:
    """Return whether the schema bounds lengths of strings, which XGrammar drops for `excludes`."""
    text = json.dumps(schema)
    return '"minLength"' in text or '"maxLength"' in text


def with_items(schema: Any) -> Any:
    """Return the JSON schema with `items` in all arrays.

    XGrammar 0.2 takes an array without `items` for an empty one where arguments are written as XML.
    """
    if isinstance(schema, list):
        return [with_items(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = ("const", "enum", "default", "examples")
    made = {key: each if key in kept else with_items(each) for key, each in schema.items()}
    if made.get("type") == "array" and not {"items", "prefixItems"} & set(made):
        made["items"] = {}
    return made


def calls(
    shape: CallShape, tools: Sequence[ToolSpec], single: bool, strict: Collection[str]
) -> Part:
    """Return at least one call, and nothing else."""
    made: Part = {
        "type": "tags_with_separator",
        "tags": [call(shape, tool, strict) for tool in tools],
        "separator": shape.between or "",
        "at_least_one": True,
        "stop_after_first": single or shape.between is None,
    }
    if not shape.before:
        return made
    return sequence([constant(shape.before), made, constant(shape.after)])


def text_or_calls(
    shape: CallShape,
    tools: Sequence[ToolSpec],
    others: Sequence[str],
    single: bool,
    strict: Collection[str],
) -> Part:
    """Return free text, in which a call must be of one of `tools`.

    `others` names the other tools that the model is shown.
    """
    if shape.from_start:
        prose = optional(sequence([{"type": "regex", "pattern": shape.from_start}, ANY_TEXT]))
        return either([calls(shape, tools, single, strict), prose]) if tools else prose
    # Where an opener holds the name, the openers of other tools may not be written.
    named = NAME in shape.opens
    excluded = [shape.opens.replace(NAME, name) for name in others] if named else []
    if not tools:
        return {"type": "any_text", "excludes": excluded or [shape.opens]}
    tags = [call(shape, tool, strict) for tool in tools]
    single = single or shape.between is None
    if shape.before:
        made = {**calls(shape, tools, single, strict)["elements"][1]}
        tags = [{"type": "tag", "begin": shape.before, "content": made, "end": shape.after}]
        single = True  # there is one section of calls in a turn
    return {
        "type": "triggered_tags",
        "triggers": [tag["begin"] for tag in tags] if named else [shape.opens],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": single,
        "excludes": excluded,
    }


def text_in(form: TextFormat, max_spaces: int = MAX_TEXT_SPACES) -> Part:
    """Return a text in the format; JSON has at most `max_spaces` of white space in a row."""
    match form.kind:
        case "json_schema" | "json_object":
            schema = form.value if form.kind == "json_schema" else {"type": "object"}
            spaces = {"max_whitespace_cnt": max_spaces}
            return {"type": "json_schema", "json_schema": schema, **spaces}
        case "regex":
            return {"type": "regex", "pattern": form.value}
        case "choice":
            return either([constant(text) for text in form.value])
        case "grammar":
            return {"type": "grammar", "grammar": form.value}


_ANALYSIS: Part = {
    "type": "tag",
    "begin": "<|channel|>analysis<|message|>",
    "content": ANY_TEXT,
    "end": "<|end|><|start|>assistant",
}
_PREAMBLE: Part = {**_ANALYSIS, "begin": "<|channel|>commentary<|message|>"}
_FINAL = constant("<|channel|>final<|message|>")


def final_message(part: Part) -> Part:
    """Return the part as the final message of a model that writes in channels (Harmony)."""
    return sequence([_FINAL, part])


def behind_messages(part: Part, preambles: bool = False) -> Part:
    """Return the part behind any number of messages of analysis, and preambles if allowed."""
    before = either([_ANALYSIS, _PREAMBLE]) if preambles else _ANALYSIS
    return sequence([{"type": "star", "content": before}, part])


def behind_thinking(part: Part, opener: str, may_think: Sequence[str]) -> Part:
    """Return the part behind the model's thinking.

    `opener` is the marker after which the turn begins, or empty. Otherwise the model may begin
    with one of the markers in `may_think`.
    """
    if opener:
        thinking = {"type": "tag", "begin": "", "content": ANY_TEXT, "end": REGIONS[opener]}
        return sequence([thinking, SPACES, part])
    if not may_think:
        return part
    regions = [
        {"type": "tag", "begin": marker, "content": ANY_TEXT, "end": REGIONS[marker]}
        for marker in may_think
    ]
    return sequence([optional(sequence([either(regions), SPACES])), part])
