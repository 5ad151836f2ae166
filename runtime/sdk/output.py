"""Typed answers: the schema that an agent's `output` asks for, and what the model writes of it.

The engine's grammar enforces the schema, and pydantic validates the text.
"""

import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails, from_json, to_json

from caesura.runtime.errors import EngineFailed, InvalidOutput, UsageError
from caesura.runtime.events import (
    ModelChanged,
    OutputRefused,
    OutputWritten,
    RunEnded,
    RunEvent,
    TextDelta,
    TurnEnded,
    Usage,
)
from caesura.runtime.sdk.hooks import End, Prompt
from caesura.scheduler.messages import TextFormat
from caesura.tools import Tool, tool
from caesura.tools.errors import is_meant_for_the_model
from caesura.tools.schema.arguments import ArgumentsError, errors_sentence, path_text
from caesura.tools.schema.signature import SchemaGenerator, compact, first_line
from caesura.tools.schema.validator import subschemas

T = TypeVar("T")

MAX_LEFT_OUT = 8
"""How many values at the end of a draft may be left out to make the rest valid."""
_NOTHING: Final = object()
_NO_GRAMMAR = ("multipleOf", "uniqueItems", "contains", "minContains", "maxContains")
_FORMATS = frozenset(
    (
        *("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid"),
        *("uri", "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"),
    )
)
_IN_NUMBER = re.compile(r"(?:^|[:\[,])\s*-?\d[\d.eE+-]*\Z")


class Unfit(ValueError):
    """An answer does not fit; the message is one sentence for the model."""


class OutputForm(Generic[T]):
    """What an agent's answers must be: of a type, or the arguments of a function.

    The type is any that pydantic takes: a model, a dataclass, a TypedDict, a union, a list, a
    number or a Literal. An answer that does not fit is tried again `retries` times. A function's
    result is the output. It raises ValueError or a `ToolError` to refuse its arguments, which
    the model is told; its other errors are raised to the caller.

    Raises `UsageError` for what has no JSON schema.
    """

    def __init__(self, given: Any, retries: int) -> None:
        self.tries = retries + 1
        self._function: Tool | None = None
        self._type: TypeAdapter[Any]
        try:
            schema = self._schema(given)
        except (PydanticUserError, PydanticUndefinedAnnotation, TypeError, NameError) as error:
            raise UsageError(
                f"output={_name(given)} gives no JSON schema: {first_line(error)}"
            ) from None
        self.text = TextFormat("json_schema", enforceable(schema))
        told = to_json(schema).decode()
        self.instructions = f"Your final answer is JSON that follows this schema: {told}"
        """What the model is told of the schema, whose descriptions no grammar shows."""

    def _schema(self, given: Any) -> dict[str, Any]:
        if isinstance(given, Tool | partial) or inspect.isroutine(given):
            made = self._function = given if isinstance(given, Tool) else tool(given)
            described = {"description": made.description} if made.description else {}
            return described | dict(made.parameters)
        self._type = TypeAdapter(given)
        schema: dict[str, Any] = self._type.json_schema(schema_generator=SchemaGenerator)
        return cast(dict[str, Any], compact(schema))

    @property
    def is_function(self) -> bool:
        """Whether answers are the arguments of a function."""
        return self._function is not None

    async def read(self, text: str) -> T:
        """Return the output that an answer's text holds. Raises `Unfit`."""
        if self._function is None:
            try:
                return cast(T, self._type.validate_json(text))
            except ValidationError as error:
                raise Unfit(errors_sentence(error, _detail)) from None
        try:
            arguments = self._function.arguments(text)
        except ArgumentsError as error:
            raise Unfit(str(error)) from None
        try:
            return cast(T, await self._function.call(**arguments))
        except Exception as error:
            if isinstance(error, ValidationError):
                raise Unfit(errors_sentence(error, _detail)) from error
            if isinstance(error, ValueError) or is_meant_for_the_model(error):
                raise Unfit(str(error) or type(error).__name__) from error
            raise

    def draft(self, value: Any) -> T | None:
        """Return the output of what is written so far, or None if that is not valid yet.

        Values at the end of it, which may be cut, are left out where the rest is valid then.
        """
        if self._function is not None:
            return None
        for _ in range(MAX_LEFT_OUT):
            if value is _NOTHING:
                return None
            try:
                return cast(T, self._type.validate_json(to_json(value)))
            except ValidationError:
                value = _without_last(value)
        return None

    def refusal(self, reason: Unfit) -> str:
        """Return what the model is told about an answer that does not fit."""
        return f"Your answer does not fit: {reason}. Write the whole answer again."


async def answered(
    form: OutputForm[Any],
    prompt: Prompt,
    drafts: bool,
    kept: Callable[[Prompt], AsyncGenerator[RunEvent, None]],
    read: Callable[[str], Awaitable[Any]],
    end: Callable[[], End | None],
) -> AsyncGenerator[RunEvent, None]:
    """Yield the events of a run whose answer has a form, which the model is asked for by `kept`.

    The model is told what does not fit, and tries again. `read` returns the output that a text
    holds, and `end` how a hook has ended the run, if one has.
    """
    usage = Usage()
    for left in reversed(range(form.tries)):
        ended, draft = None, Drafts(form) if drafts else None
        async with aclosing(kept(prompt)) as events:
            async for event in events:
                if isinstance(event, RunEnded):
                    ended = event
                    continue
                yield event
                if draft is not None and (written := draft.take(event)) is not None:
                    yield written
        if ended is None:
            raise EngineFailed("the run ended without an answer")
        usage += ended.usage
        if (by_hook := end()) is not None:
            yield OutputWritten(by_hook.answer, by_hook.answer, complete=True)
            yield replace(ended, usage=usage)
            return
        if ended.reason != "stop":
            raise InvalidOutput(
                f"a token limit cut the answer behind {ended.usage.completion_tokens} tokens,"
                " before its output was complete: raise max_tokens, or ask for less",
                ended.text,
            )
        try:
            output = await read(ended.text)
        except Unfit as error:
            if not left:
                raise InvalidOutput(
                    f"the answer did not fit in {form.tries} tries: {error}", ended.text
                ) from error
            yield OutputRefused(ended.text, str(error))
            prompt = form.refusal(error)
            continue
        yield OutputWritten(json_so_far(ended.text), output, complete=True)
        yield replace(ended, usage=usage)
        return


class Drafts(Generic[T]):
    """Reads the output of one answer while the model writes it."""

    def __init__(self, form: OutputForm[T]) -> None:
        self._form = form
        self._text = ""
        self._due = 0
        self._value: Any = _NOTHING

    def take(self, event: RunEvent) -> OutputWritten[T] | None:
        """Add an event; return the output so far, if it has changed.

        Long texts are read again when they have grown by a part, so that the work stays linear.
        """
        is_void = isinstance(event, ModelChanged)
        if is_void or (isinstance(event, TurnEnded) and event.reason == "call"):
            self._text, self._due, self._value = "", 0, _NOTHING  # the answer comes later
        if not isinstance(event, TextDelta):
            return None
        self._text += event.text
        if len(self._text) < self._due:
            return None
        self._due = len(self._text) * 65 // 64
        value = json_so_far(self._text)
        if value is _NOTHING or value == self._value:
            return None
        self._value = value
        return OutputWritten(value, self._form.draft(value))


def json_so_far(text: str) -> Any:
    """Return the value of JSON text that may be cut, without a number whose digits may go on."""
    try:
        value = from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return _NOTHING
    return _without_last(value, number=True) if _IN_NUMBER.search(text) else value


def enforceable(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without the keywords that grammars of engines cannot express.

    Validation holds an answer to them.
    """
    schema = from_json(to_json(schema))
    for part in subschemas(schema):
        dropped = [*_NO_GRAMMAR]
        if part.get("format") not in _FORMATS:
            dropped.append("format")
        if "pattern" in part or part.get("format") in _FORMATS:
            dropped += ["minLength", "maxLength"]
        if "properties" in part or "patternProperties" in part:
            dropped.append("propertyNames")
        for key in dropped:
            part.pop(key, None)
    return schema


def _without_last(value: Any, number: bool = False) -> Any:
    """Return a JSON value without its last leaf, or only if that is a number; it may be nothing."""
    if isinstance(value, dict) and value:
        *_, last = value
        kept: Any = {key: each for key, each in value.items() if key != last}
        if (shorter := _without_last(value[last], number)) is not _NOTHING:
            kept[last] = shorter
        return kept
    if isinstance(value, list) and value:
        shorter = _without_last(value[-1], number)
        return value[:-1] if shorter is _NOTHING else [*value[:-1], shorter]
    return value if number and type(value) not in (int, float) else _NOTHING


def _detail(detail: ErrorDetails) -> str:
    place, message = path_text(detail["loc"]), detail["msg"]
    return f"{place}: {message}" if place else message


def _name(given: Any) -> str:
    named: Callable[..., Any] = given
    return str(getattr(named, "__qualname__", None) or repr(given))
