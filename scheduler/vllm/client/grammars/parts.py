"""The parts of a structural tag: calls, texts in a format, and thinking.

A structural tag is JSON that describes what a model may write (Dong et al. 2024, XGrammar).
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from caesura.intercept.calls.call_shapes import NAME, NUMBER, CallShape
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.messages import TextFormat, ToolSpec

Part = dict[str, Any]

MAX_ARGUMENT_SPACES = 2
"""White space in a row within a call's arguments, since some models write it without end."""
MAX_TEXT_SPACES = 8
"""White space in a row within the JSON of an answer, some of which models indent."""

ANY_TEXT: Part = {"type": "any_text"}
SPACES: Part = {"type": "regex", "pattern": r"[ \n]{0,4}"}


def sequence(parts: Sequence[Part]) -> Part:
    """Return the parts one after the other."""
    return parts[0] if len(parts) == 1 else {"type": "sequence", "elements": list(parts)}


def either(parts: Sequence[Part]) -> Part:
    """Return any one of the parts."""
    return parts[0] if len(parts) == 1 else {"type": "or", "elements": list(parts)}


def constant(text: str) -> Part:
    """Return exactly this text."""
    return {"type": "const_string", "value": text}


def call(shape: CallShape, tool: ToolSpec, strict: Collection[str]) -> Part:
    """Return one call of a tool, with arguments of its schema if its name is in `strict`."""
    name, schema = str(tool["function"]["name"]), {"type": "object"}
    if name in strict:
        schema = tool["function"].get("parameters") or {"type": "object", "properties": {}}
    if f'"{NAME}"' in shape.begin:
        name = json.dumps(name, ensure_ascii=False)[1:-1]
    begin, *rest = shape.begin.replace(NAME, name).split(NUMBER)
    arguments: Part = {
        "type": "json_schema",
        "json_schema": schema,
        "style": shape.style,
    }
    if shape.style == "json":
        arguments["max_whitespace_cnt"] = MAX_ARGUMENT_SPACES
    parts = [arguments]
    for text in rest:
        parts[:0] = [{"type": "regex", "pattern": "[0-9]{1,3}"}, constant(text)]
    return {"type": "tag", "begin": begin, "content": sequence(parts), "end": shape.end}


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
    shape: CallShape, tools: Sequence[ToolSpec], single: bool, strict: Collection[str]
) -> Part:
    """Return free text, in which a call must be of one of `tools`."""
    if not tools:
        return {"type": "any_text", "excludes": [shape.opens]}
    tags = [call(shape, tool, strict) for tool in tools]
    single = single or shape.between is None
    if shape.before:
        made = {**calls(shape, tools, single, strict)["elements"][1]}
        tags = [{"type": "tag", "begin": shape.before, "content": made, "end": shape.after}]
        single = True  # there is one section of calls in a turn
    return {
        "type": "triggered_tags",
        "triggers": [shape.opens],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": single,
    }


def text_in(form: TextFormat) -> Part:
    """Return a text in the format."""
    match form.kind:
        case "json_schema" | "json_object":
            schema = form.value if form.kind == "json_schema" else {"type": "object"}
            spaces = {"max_whitespace_cnt": MAX_TEXT_SPACES}
            return {"type": "json_schema", "json_schema": schema, **spaces}
        case "regex":
            return {"type": "regex", "pattern": form.value}
        case "choice":
            return either([constant(text) for text in form.value])
        case "grammar":
            return {"type": "grammar", "grammar": form.value}


def in_final_channel(part: Part) -> Part:
    """Return the part as the final message of a model that writes in channels (Harmony)."""
    begin, end = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"
    analysis = {"type": "tag", "begin": begin, "content": ANY_TEXT, "end": end}
    opening = constant("<|channel|>final<|message|>")
    return sequence([{"type": "optional", "content": analysis}, opening, part])


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
    optional = {"type": "optional", "content": sequence([either(regions), SPACES])}
    return sequence([optional, part])
