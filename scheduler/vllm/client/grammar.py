"""The grammar of one turn, from the request's settings and the model's format of calls."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vllm.sampling_params import StructuredOutputsParams
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features
from xgrammar import Grammar

from caesura.intercept.calls.call_shapes import ONE_AT_A_TIME, CallShape, shape_of
from caesura.intercept.calls.formats import HARMONY, TURN_FORMATS
from caesura.intercept.calls.thinking import REGIONS
from caesura.scheduler.errors import UsageError
from caesura.scheduler.messages import CallRule, InputGrammar, Sampling, TextFormat, ToolSpec
from caesura.scheduler.vllm.client.structural_tags import (
    ANY_TEXT,
    MAX_COMPACT_SPACES,
    MAX_TEXT_SPACES,
    Part,
    behind_messages,
    behind_thinking,
    calls,
    either,
    final_message,
    in_json,
    text_in,
    text_or_calls,
)


class GrammarMaker:
    """Makes the grammars of one model's turns."""

    def __init__(
        self,
        formats: Sequence[str],
        tokenizer: Any,
        template: str,
        compact: bool = False,
        backend: str = "auto",
    ) -> None:
        """Create it for a model that writes calls in `formats` behind a chat template.

        With `compact`, the JSON of an answer holds no more than one space in a row. `backend` is
        vLLM's, of which only XGrammar has grammars of calls.
        """
        self._backend = backend
        self._formats = tuple(formats)
        self._compact = compact
        has_args_token = "[ARGS]" in tokenizer.get_vocab()
        by_turn_first = sorted(formats, key=lambda name: name not in TURN_FORMATS)
        shapes = [shape_of(name, has_args_token) for name in by_turn_first]
        self._shape = next((shape for shape in shapes if shape is not None), None)
        self._has_channels = HARMONY.name in formats
        self._may_think = [opener for opener in REGIONS if opener in template]

    def of_turn(
        self, tools: Sequence[ToolSpec], sampling: Sampling, opener: str
    ) -> StructuredOutputsParams | None:
        """Return the grammar of a turn, or None if the model may write anything.

        `tools` are those that the turn may call. `opener` is the marker of thinking after which
        the turn begins, or empty. Raises `UsageError` for what no grammar of this model's calls
        can express.
        """
        rule = sampling.calls or CallRule()
        allowed = [tool for tool in tools if rule.names is None or _name(tool) in rule.names]
        if rule.required and not allowed:
            shown = ", ".join(map(_name, tools)) or "none"
            raise UsageError(
                f"a call is required, but no tool may be called of those shown: {shown}; allow one"
            )
        if not tools:
            return self._of_text(sampling.text, opener)
        bound = rule.strict | set(rule.inputs)
        strict = {
            _name(tool): in_json(rule.inputs[_name(tool)]) if _name(tool) in rule.inputs else None
            for tool in allowed
            if _name(tool) in bound or (rule.required and not _fault(_schema(tool)))
        }
        single = rule.single and not set(self._formats) <= ONE_AT_A_TIME
        limited = rule.required or single or len(allowed) < len(tools)
        if not (limited or strict or sampling.text):
            return None
        shape = self._known_shape()
        for tool in allowed:
            if _name(tool) in rule.strict:
                _check(_schema(tool), f"of the strict tool {_name(tool)!r}")
        if rule.required:
            return self._whole(calls(shape, allowed, rule.single, strict), opener)
        if sampling.text is not None or self._has_channels:
            part = self._text(sampling.text)
            if allowed:
                part = either([calls(shape, allowed, rule.single, strict), part])
        else:
            others = [_name(tool) for tool in tools if tool not in allowed]
            part = text_or_calls(shape, allowed, others, single, strict)
        return self._whole(part, opener, preambles=sampling.text is None)

    def check_input(self, grammar: InputGrammar) -> None:
        """Raise `UsageError` if calls cannot be made to hold a text of this grammar."""
        if self._shape is None or self._shape.style != "json":
            known = ", ".join(self._formats) or "none"
            raise UsageError(
                f"no grammar of a text can be enforced in this model's format of calls: {known}"
            )
        try:
            Grammar.from_ebnf(in_json(grammar))
        except (ValueError, RuntimeError) as error:
            raise UsageError(str(error)) from None

    def _whole(self, part: Part, opener: str, preambles: bool = False) -> StructuredOutputsParams:
        """Return the grammar of a turn that holds the part, behind what the model may think."""
        if self._others:
            raise UsageError(
                "forced, strict or single calls, and an output format beside tools or thinking,"
                f" need XGrammar, and the server was started with the backend {self._backend!r}:"
                " leave it out of --structured-outputs-config"
            )
        if self._has_channels:
            return _tag(behind_messages(part, preambles))
        return _tag(behind_thinking(part, opener, self._may_think))

    @property
    def _others(self) -> bool:
        """Whether another library than XGrammar enforces grammars."""
        return self._backend not in ("auto", "xgrammar")

    def _known_shape(self) -> CallShape:
        if self._shape is None:
            known = ", ".join(self._formats) or "none"
            raise UsageError(
                "forced, strict or single calls, and an output format beside tools, need a grammar"
                f" of the model's calls, which is not known for its formats: {known}; leave"
                " tool_choice, strict, parallel_tool_calls and response_format at their defaults"
            )
        return self._shape

    def _of_text(self, form: TextFormat | None, opener: str) -> StructuredOutputsParams | None:
        """Return the grammar of a turn without tools."""
        if form is None:
            return None
        if self._has_channels or opener or self._may_think:
            return self._whole(self._text(form), opener)
        match form.kind:
            case "json_schema" if self._others or has_xgrammar_unsupported_json_features(
                form.value
            ):
                # vLLM chooses another grammar library for it, where none was chosen.
                return StructuredOutputsParams(json=form.value)
            case "json_object" if self._others:
                return StructuredOutputsParams(json_object=True)
            case "json_schema" | "json_object":
                return _tag(self._text_in(form))  # with a bound on white space
            case "regex":
                return StructuredOutputsParams(regex=form.value)
            case "choice":
                return StructuredOutputsParams(choice=list(form.value))
            case "grammar":
                return StructuredOutputsParams(grammar=form.value)

    def _text_in(self, form: TextFormat) -> Part:
        return text_in(form, MAX_COMPACT_SPACES if self._compact else MAX_TEXT_SPACES)

    def _text(self, form: TextFormat | None) -> Part:
        """Return the answer in the format, or any answer without one."""
        if form is not None and form.kind == "json_schema":
            _check(form.value, "of the output format")
        part = ANY_TEXT if form is None else self._text_in(form)
        if form is not None and form.kind in ("regex", "grammar") and (why := _fault_of(part)):
            raise UsageError(f"the {form.kind} of the answer cannot be enforced: {why}")
        return final_message(part) if self._has_channels else part


def _tag(part: Part) -> StructuredOutputsParams:
    whole = {"type": "structural_tag", "format": part}
    return StructuredOutputsParams(structural_tag=json.dumps(whole, ensure_ascii=False))


_NO_SPACES = {"whitespace_flexible": False}


def single_spaced(given: StructuredOutputsParams) -> StructuredOutputsParams:
    """Return the grammar that was given, with one space at most between the parts of JSON.

    vLLM allows white space without end, or none. A schema that XGrammar cannot express gets none,
    by a key of guidance's, if the engine uses that. A grammar that chooses itself stays as it is.
    """
    chosen = given.whitespace_pattern or given.disable_additional_properties
    if chosen or given.disable_any_whitespace or (given.json is None and not given.json_object):
        return given
    try:
        schema = json.loads(given.json) if isinstance(given.json, str) else given.json
        if has_xgrammar_unsupported_json_features(schema or {}):
            return StructuredOutputsParams(json={"x-guidance": _NO_SPACES, **schema})
        form = TextFormat("json_schema", schema) if schema else TextFormat("json_object")
        made = _tag(text_in(form, MAX_COMPACT_SPACES))
        Grammar.from_structural_tag(made.structural_tag or "")
    except (AttributeError, TypeError, ValueError, RuntimeError, RecursionError):
        return given  # vLLM says what is wrong with it
    return made


def _name(tool: ToolSpec) -> str:
    return str(tool["function"]["name"])


def _schema(tool: ToolSpec) -> Any:
    return tool["function"].get("parameters") or {}


def _check(schema: Any, whose: str) -> None:
    """Raise `UsageError` for a JSON schema that XGrammar does not enforce, or only in part."""
    if has_xgrammar_unsupported_json_features(schema or {}):
        raise UsageError(
            f"the JSON schema {whose} uses keywords that a grammar cannot enforce beside tools or"
            " thinking, such as multipleOf, uniqueItems or an allOf of several; leave them out"
        )
    if why := _fault(schema):
        raise UsageError(f"the JSON schema {whose} cannot be enforced: {why}")


def _fault(schema: Any) -> str:
    """Return why XGrammar makes no grammar of a JSON schema, or an empty text."""
    return _fault_of({"type": "json_schema", "json_schema": schema or {"type": "object"}})


def _fault_of(part: Part) -> str:
    """Return why XGrammar makes no grammar of a part, or an empty text."""
    return _fault_of_tag(json.dumps({"type": "structural_tag", "format": part}, sort_keys=True))


@lru_cache(maxsize=1024)
def _fault_of_tag(tag: str) -> str:
    try:
        Grammar.from_structural_tag(tag)
    except (ValueError, RuntimeError) as error:
        return _PLACE.sub("", str(error)).strip() or type(error).__name__
    return ""


_PLACE = re.compile(r"^\[[\d:]+\] \S+?:\d+: ")
"""What XGrammar writes before a reason: the time, and the place in its own source."""
