"""The parts of a structural tag: texts, calls with their arguments, and thinking.

A structural tag is JSON that describes what a model may write (Dong et al. 2024, XGrammar).
XGrammar writes arguments of a schema as JSON or XML only. For formats whose calls look like Python,
a value is a literal that `ast.literal_eval` reads: `f(title='tea', days=[1, 2], open=True)`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from xgrammar import Grammar

from caesura.intercept.calls.call_shapes import NAME, NUMBER, CallShape
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import InputGrammar, TextFormat, ToolSpec

Part = dict[str, Any]
ANY_TEXT: Part = {"type": "any_text"}
SPACES: Part = {"type": "regex", "pattern": r"[ \n]{0,4}"}
MAX_ARGUMENT_SPACES = 2
"""White space in a row within a call's arguments, since some models write it without end."""
MAX_TEXT_SPACES = 8
"""White space in a row within the JSON of an answer, which models may indent."""
MAX_COMPACT_SPACES = 1
"""White space in a row where JSON shall be compact, as most models write it."""
MAX_NESTING_LEVELS = 6
"""Values nested deeper than this, as in recursive schemas, may be any literal."""


def constant(text: str) -> Part:
    """Return exactly this text."""
    return {"type": "const_string", "value": text}


def sequence(parts: Sequence[Part]) -> Part:
    """Return the parts one after the other."""
    return parts[0] if len(parts) == 1 else {"type": "sequence", "elements": list(parts)}


def either(parts: Sequence[Part]) -> Part:
    """Return any one of the parts."""
    return parts[0] if len(parts) == 1 else {"type": "or", "elements": list(parts)}


def optional(part: Part) -> Part:
    """Return the part or nothing."""
    return {"type": "optional", "content": part}


Written = Mapping[str, str | None]
"""The tools whose arguments are constrained: to their schema, or to one text of a grammar."""


def call(shape: CallShape, tool: ToolSpec, written: Written) -> Part:
    """Return one call of a tool, with arguments as `written` says.

    Raises `UsageError` for names that the format cannot write.
    """
    name = str(tool["function"]["name"])
    text = written.get(name)
    arguments = (
        _arguments(shape, tool, name in written) if text is None else _text_argument(tool, text)
    )
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


def _text_argument(tool: ToolSpec, grammar: str) -> Part:
    """Return arguments as JSON, of which the only one is a text of the grammar."""
    (key,) = tool["function"]["parameters"]["properties"]
    begin = json.dumps({key: ""})[:-2]
    return sequence([constant(begin), {"type": "grammar", "grammar": grammar}, constant('"}')])


_TERMINAL = re.compile(r'"((?:[^"\\]|\\.)*)"|\[((?:[^\]\\]|\\.)*)\]', re.DOTALL)
_ESCAPED = re.compile(r"\\(?:x(..)|u(.{4})|U(.{8})|(.))|(.)", re.DOTALL)
_SHORT = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "b": "\b", "a": "\a", "0": "\0"}
_SPECIAL = (*range(0x20), 0x22, 0x5C)
"""What JSON escapes in a text: control characters, the quote and the backslash."""
_UNKNOWN = ("TagDispatch", "Token", "TokenTagDispatch")
_LAST, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def in_json(given: InputGrammar) -> str:
    """Return the grammar of texts as one of the same texts, written within a string of JSON.

    XGrammar reads the grammar and prints it as rules of literals and classes of characters. Each
    of these is rewritten, so that a character that JSON escapes is written as `json.dumps` does.
    Raises `ValueError` for a grammar that XGrammar cannot read.
    """
    read = Grammar.from_lark if given.syntax == "lark" else Grammar.from_regex
    try:
        printed = str(read(given.definition))
    except (RuntimeError, UnicodeError) as error:
        raise ValueError(f"the grammar cannot be read: {str(error)[:200]}") from None
    if any(f"{name}(" in printed for name in _UNKNOWN):
        raise ValueError("the grammar has rules that are more than literals and characters")
    return _TERMINAL.sub(_terminal_in_json, printed)


def _terminal_in_json(found: re.Match[str]) -> str:
    if found[1] is not None:
        text = "".join(map(chr, (code for code, _ in _codes(found[1]))))
        return _literal(json.dumps(text, ensure_ascii=False)[1:-1])
    negated = found[2].startswith("^")
    allowed = _ranges(found[2][negated:])
    if negated:
        allowed = _without(allowed)
    special = [code for code in _SPECIAL if any(low <= code <= high for low, high in allowed)]
    plain = _without([*_without(allowed), *((code, code) for code in _SPECIAL)])
    ways = [_literal(json.dumps(chr(code))[1:-1]) for code in special]
    if plain:
        ways.insert(0, "[" + "".join(f"{_code(low)}-{_code(high)}" for low, high in plain) + "]")
    return "(" + " | ".join(ways) + ")"


def _codes(text: str) -> Iterable[tuple[int, bool]]:
    """Yield the characters of a printed terminal, and whether each was written plainly."""
    for x, u, long, short, plain in _ESCAPED.findall(text):
        code = x or u or long
        if code:
            yield int(code, 16), False
        else:
            yield ord(plain or _SHORT.get(short, short)), bool(plain)


def _ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges of a class of characters, as they are printed between brackets."""
    codes = list(_codes(text))
    ranges = []
    while codes:
        low, _ = codes.pop(0)
        if len(codes) > 1 and codes[0] == (ord("-"), True):
            ranges.append((low, codes[1][0]))
            del codes[:2]
        else:
            ranges.append((low, low))
    return ranges


def _without(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges of all characters that are in none of these."""
    found, first = [], 0
    for low, high in sorted([*ranges, _SURROGATES, (_LAST + 1, _LAST + 1)]):
        if low > first:
            found.append((first, low - 1))
        first = max(first, high + 1)
    return found


def _literal(text: str) -> str:
    return '"' + "".join(map(_code, map(ord, text))) + '"'


def _code(code: int) -> str:
    """Return a character as XGrammar reads it in literals and classes."""
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08x}"


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


def calls(shape: CallShape, tools: Sequence[ToolSpec], single: bool, written: Written) -> Part:
    """Return at least one call, and nothing else."""
    made: Part = {
        "type": "tags_with_separator",
        "tags": [call(shape, tool, written) for tool in tools],
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
    written: Written,
) -> Part:
    """Return free text, in which a call must be of one of `tools`.

    `others` names the other tools that the model is shown.
    """
    if shape.from_start:
        prose = optional(sequence([{"type": "regex", "pattern": shape.from_start}, ANY_TEXT]))
        return either([calls(shape, tools, single, written), prose]) if tools else prose
    # Where an opener holds the name, the openers of other tools may not be written.
    named = NAME in shape.opens
    excluded = [shape.opens.replace(NAME, name) for name in others] if named else []
    if not tools:
        return {"type": "any_text", "excludes": excluded or [shape.opens]}
    tags = [call(shape, tool, written) for tool in tools]
    single = single or shape.between is None
    if shape.before:
        made = {**calls(shape, tools, single, written)["elements"][1]}
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


_NUMBER_KEYS = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
# Escapes that `repr` writes and a few that models write; a lone surrogate is no character.
_ESCAPE = r"""\\(["'\\nrtbf]|x[0-9a-f]{2}|u([0-9a-ce-f][0-9a-f]{3}|d[0-7][0-9a-f]{2}))"""
# A hyphen is followed by no `>`, so that no string holds the arrow of a call in line.
_WITHOUT_ARROW = r"([^QUOTE\\\x00-\x1f\-]|\-+[^QUOTE\\\x00-\x1f\->]|\-*" + _ESCAPE + r")*\-*"
_ANY_VALUE = r"""
root ::= value
value ::= string | number | "True" | "False" | "None" | list | dict
string ::= "'" single "'" | "\"" double "\""
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9] [0-9]?)?
list ::= "[]" | "[" value (", " value)* "]"
dict ::= "{}" | "{" string ": " value (", " string ": " value)* "}"
escape ::= "\\" ["'\\nrtbf] | "\\x" [0-9a-f] [0-9a-f]
"""
_CHARACTERS = r"""
single ::= ([^'\\\x00-\x1f] | escape)*
double ::= ([^"\\\x00-\x1f] | escape)*
"""
_CHARACTERS_WITHOUT_ARROW = r"""
single ::= ([^'\\\x00-\x1f\-] | "-"+ [^'\\\x00-\x1f\->] | "-"* escape)* "-"*
double ::= ([^"\\\x00-\x1f\-] | "-"+ [^"\\\x00-\x1f\->] | "-"* escape)* "-"*
"""
_ANY_KEYWORDS = r"""
root ::= "" | argument (", " argument)*
argument ::= [a-zA-Z_] [a-zA-Z0-9_]{0,63} "=" value
"""


def is_python_name(name: str) -> bool:
    """Return whether a call can be of a tool with this name; dots separate parts of it."""
    return all(part.isidentifier() and not iskeyword(part) for part in name.split("."))


class PythonArguments:
    """Makes the arguments of one format's calls."""

    def __init__(self, bars_arrow: bool = False) -> None:
        """Create it; with `bars_arrow` no string holds `->`, which ends a call in line."""
        self._bars_arrow = bars_arrow
        characters = _CHARACTERS_WITHOUT_ARROW if bars_arrow else _CHARACTERS
        self._any_value = _ANY_VALUE + characters

    def of_schema(self, schema: Mapping[str, Any]) -> Part:
        """Return the keyword arguments that follow the JSON schema of an object.

        Raises `UsageError` for a required argument whose name Python does not allow.
        """
        properties = dict(schema.get("properties") or {})
        required = set(schema.get("required") or ())
        for key in sorted(required):
            if not key.isidentifier() or iskeyword(key):
                raise UsageError(
                    f"the required argument {key!r} is no Python name, so that this model's"
                    " format cannot write it; rename it"
                )
        arguments = [
            (sequence([constant(f"{key}="), self._value(value, schema, 0)]), key in required)
            for key, value in properties.items()
            if key.isidentifier() and not iskeyword(key)
        ]
        return _members(arguments)

    def of_names(self, names: Iterable[str]) -> Part:
        """Return keyword arguments with any values, of these names, or of all names if empty."""
        properties: dict[str, dict[str, Any]] = {name: {} for name in names}
        if properties:
            return self.of_schema({"properties": properties})
        rules = self._any_value.replace("root ::= value\n", "")
        return {"type": "grammar", "grammar": _ANY_KEYWORDS + rules}

    def _value(self, schema: Any, root: Mapping[str, Any], level: int) -> Part:
        """Return the values of a schema; `root` resolves its references."""
        if isinstance(schema, Mapping) and "$ref" in schema:
            schema = _referred(str(schema["$ref"]), root)
        if not isinstance(schema, Mapping) or level > MAX_NESTING_LEVELS:
            return self._anything()
        if "const" in schema or "enum" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            return either([constant(text) for value in values for text in self._written(value)])
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return either([self._value(each, root, level + 1) for each in schema[key]])
        if len(schema.get("allOf", ())) == 1:
            return self._value(schema["allOf"][0], root, level + 1)
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not kinds or any(kind not in _TYPES for kind in kinds):
            return self._anything()
        return either([self._typed(kind, schema, root, level) for kind in kinds])

    def _typed(
        self, kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], level: int
    ) -> Part:
        match kind:
            case "string":
                return self._string(schema)
            case "boolean":
                return either([constant("True"), constant("False")])
            case "null":
                return constant("None")
            case "array":
                return self._list(schema, root, level)
            case "object":
                return self._dict(schema, root, level)
            case _:
                bounds = {key: schema[key] for key in _NUMBER_KEYS if key in schema}
                return {"type": "json_schema", "json_schema": {**bounds, "type": kind}}

    def _string(self, schema: Mapping[str, Any]) -> Part:
        if "pattern" in schema or "format" in schema:
            # XGrammar writes no escapes in them, so that Python reads what JSON would.
            form = {key: schema[key] for key in ("pattern", "format") if key in schema}
            return {"type": "json_schema", "json_schema": {"type": "string", **form}}
        least, most = schema.get("minLength", 0), schema.get("maxLength", "")
        free = (least, most) == (0, "")
        count = "*" if free else f"{{{least},{most}}}"
        if self._bars_arrow:
            pattern = _WITHOUT_ARROW if free else rf"([^QUOTE\\>\x00-\x1f]|{_ESCAPE}){count}"
        else:
            pattern = rf"([^QUOTE\\\x00-\x1f]|{_ESCAPE}){count}"
        return either(
            [
                {"type": "regex", "pattern": f"{quote}{pattern.replace('QUOTE', quote)}{quote}"}
                for quote in "'\""
            ]
        )

    def _list(self, schema: Mapping[str, Any], root: Mapping[str, Any], level: int) -> Part:
        if "prefixItems" in schema:
            items = [self._value(each, root, level + 1) for each in schema["prefixItems"]]
            return _enclosed("[", _members([(item, True) for item in items]), "]")
        item = self._value(schema.get("items", {}), root, level + 1)
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", -1))
        return _enclosed("[", _repeated(item, least, most), "]")

    def _dict(self, schema: Mapping[str, Any], root: Mapping[str, Any], level: int) -> Part:
        required = set(schema.get("required") or ())
        properties = schema.get("properties") or {}
        if not properties:
            value = self._value(schema.get("additionalProperties", {}), root, level + 1)
            pair = sequence([self._string({}), constant(": "), value])
            return _enclosed("{", _repeated(pair, 0, -1), "}")
        pairs = []
        for key, each in properties.items():
            written = either([constant(f"{text}: ") for text in self._written(key)])
            pair = sequence([written, self._value(each, root, level + 1)])
            pairs.append((pair, key in required))
        return _enclosed("{", _members(pairs), "}")

    def _anything(self) -> Part:
        return {"type": "grammar", "grammar": self._any_value}

    def _written(self, value: Any) -> list[str]:
        """Return the ways in which a JSON value may be written: strings in both quotes."""
        texts = [repr(value)]
        if isinstance(value, str):
            texts.append(json.dumps(value, ensure_ascii=False))
        if self._bars_arrow:
            texts = [text.replace("->", r"-\x3e") for text in texts]
        return list(dict.fromkeys(texts))


def _members(parts: Sequence[tuple[Part, bool]]) -> Part:
    """Return the parts in their order with `, ` between them; those that are False may be left."""
    ways = []
    for index, (first, required) in enumerate(parts):
        rest = [
            further if needed else optional(further)
            for part, needed in parts[index + 1 :]
            for further in [sequence([constant(", "), part])]
        ]
        ways.append(sequence([first, *rest]))
        if required:
            return either(ways)
    return optional(either(ways)) if ways else constant("")


def _repeated(item: Part, least: int, most: int) -> Part:
    """Return from `least` to `most` items with `, ` between them; -1 means no limit."""
    if most == 0:
        return constant("")
    further = {
        "type": "repeat",
        "min": max(least - 1, 0),
        "max": most if most < 0 else most - 1,
        "content": sequence([constant(", "), item]),
    }
    whole = sequence([item, further])
    return whole if least > 0 else optional(whole)


def _enclosed(opening: str, part: Part, closing: str) -> Part:
    return sequence([constant(opening), part, constant(closing)])


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference within the schema names; anything if it names nothing."""
    found: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
