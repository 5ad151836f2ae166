"""A JSON schema and a validator of arguments, made from a typed Python function.

The descriptions come from its docstring: the first paragraph, and the section "Args:".
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from caesura.tools.schema.arguments import ArgumentsError, validation_sentence

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?):\s*$", re.IGNORECASE
)
_ARGUMENTS = re.compile(r"(Args|Arguments|Parameters):\s*$", re.IGNORECASE)
# "city: text", "city (str): text", "city (str, optional): text"
_ENTRY = re.compile(r"(?P<name>\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)$")


def first_paragraph(function: Callable[..., Any]) -> str:
    """Return the docstring's first paragraph on one line; "" without one."""
    lines: list[str] = []
    for line in _lines(function):
        if not line.strip() or _SECTION.match(line):
            break
        lines.append(line.strip())
    return " ".join(lines)


def argument_descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return each argument's text in the Google-style "Args:" section, on one line."""
    found: dict[str, list[str]] = {}
    name = ""
    entry_indent: int | None = None
    for line in _section(_lines(function)):
        indent = len(line) - len(line.lstrip())
        entry_indent = indent if entry_indent is None else entry_indent
        entry = _ENTRY.match(line.strip()) if indent == entry_indent else None
        if entry:
            name = entry["name"]
            found[name] = [entry["text"].strip()]
        elif name:
            found[name].append(line.strip())
    texts = {name: " ".join(filter(None, parts)) for name, parts in found.items()}
    return {name: text for name, text in texts.items() if text}


def _lines(function: Callable[..., Any]) -> list[str]:
    return (inspect.getdoc(function) or "").splitlines()


def _section(lines: list[str]) -> list[str]:
    """Return the non-empty, indented lines under the "Args:" heading."""
    inside = False
    section: list[str] = []
    for line in lines:
        if not inside:
            inside = bool(_ARGUMENTS.match(line))
        elif line.strip() and not line.startswith((" ", "\t")):
            break
        elif line.strip():
            section.append(line)
    return section


Validator = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes a call's arguments and returns the keyword arguments; raises ArgumentsError."""

_NAMED_SCHEMAS = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_PLAIN_DATA = {"default", "const", "enum", "examples"}


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's description for the model, and the validator of the arguments it writes."""

    description: str
    """The docstring's first paragraph; "" without a docstring."""
    parameters: dict[str, Any]
    """JSON schema of type "object"."""
    validate: Validator
    given: Mapping[str, Any]
    """The annotations of the parameters that the caller gives, by name."""


def signature_of(function: Callable[..., Any], given: type | None = None) -> Signature:
    """Return the signature of a typed function, bound method, partial or callable object.

    What a `functools.partial` binds is no parameter for the model, nor is one of the type `given`.
    A parameter's description comes from its `Annotated[..., Field(description=...)]`, else from
    the docstring's "Args:" section. Raises TypeError for a function that cannot be called from
    JSON; the message says what to change.
    """
    inner = _function_in(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise TypeError(f"{inner.__qualname__} is a generator: return the whole result instead")
    bound = set(function.keywords) if isinstance(function, partial) else set()
    named = inspect.signature(function).parameters.values()
    hints = _hints(inner)
    hidden = {name: hint for name, hint in hints.items() if given and is_of(hint, given)}
    parameters = [each for each in named if each.name not in bound and each.name not in hidden]
    for parameter in parameters:
        _check(parameter, hints, inner.__qualname__)
    model = _model(parameters, hints, inner.__qualname__)
    return Signature(
        # An undocumented `__call__` inherits a sentence about calls, which is about no tool.
        description=first_paragraph(inner if inner.__doc__ else _without_partials(function)),
        parameters=_json_schema(model, inner),
        validate=_validator(model, parameters),
        given={
            each.name: hidden[each.name] for each in named if each.name in hidden.keys() - bound
        },
    )


def is_of(hint: Any, kind: type) -> bool:
    """Return whether an annotation is of a class, with or without its parameters."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return hint is kind or typing.get_origin(hint) is kind


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, of what a partial calls, or of a callable object's class."""
    called = _without_partials(function)
    return str(getattr(called, "__name__", "") or type(called).__name__)


def _without_partials(function: Any) -> Any:
    while isinstance(function, partial):
        function = function.func
    return function


def _function_in(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function or method that is called in the end; raise TypeError for another."""
    called = _without_partials(function)
    if not (inspect.isroutine(called) or inspect.isclass(called)):
        called = getattr(called, "__call__", None)  # noqa: B004
    if not (inspect.isfunction(called) or inspect.ismethod(called)):
        raise TypeError(f"{function!r} is not a function: wrap it in a typed function")
    return cast(Callable[..., Any], called)


def compact(schema: Any) -> Any:
    """Return the schema without its "title" annotations, which repeat the names.

    Properties that are themselves named "title" stay.
    """
    if isinstance(schema, list):
        return [compact(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _PLAIN_DATA:
            kept[key] = value
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            kept[key] = {name: compact(inner) for name, inner in value.items()}
        elif key != "title":
            kept[key] = compact(value)
    return kept


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{function.__qualname__}: an annotation cannot be resolved ({error}); "
            "define or import the type at module level"
        ) from error


def _check(parameter: inspect.Parameter, hints: dict[str, Any], where: str) -> None:
    """Raise TypeError for a parameter that a model could not fill by name and type."""
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise TypeError(f"{where}: {stars}{name} has no schema; name and type each parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise TypeError(
            f"{where}: parameter {name!r} is positional-only, but arguments come by name; "
            "remove the '/'"
        )
    if name not in hints:
        raise TypeError(
            f"{where}: parameter {name!r} has no type annotation; write for example `{name}: str`"
        )
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(
            f"{where}: parameter {name!r} has a Field as its default; "
            f"write `{name}: Annotated[..., Field(...)]` and a plain default"
        )


def _model(
    parameters: list[inspect.Parameter], hints: dict[str, Any], where: str
) -> type[BaseModel]:
    """Return a pydantic model with one field per parameter.

    The fields are named p0, p1, ... and have the parameters' names as aliases: a parameter may
    have a name that a field may not (`_x`, `schema`, `model_config`).
    """
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(parameters):
        name: dict[str, Any] = {"alias": parameter.name, "validation_alias": parameter.name}
        if parameter.default is not parameter.empty:
            name["default"] = parameter.default
        fields[f"p{index}"] = (hints[parameter.name], Field(**name))
    try:
        return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
    except PydanticUserError as error:
        raise TypeError(f"{where}: {first_line(error)}") from error


class SchemaGenerator(GenerateJsonSchema):
    """Makes JSON schemas without warnings about defaults."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore defaults that JSON cannot represent: the function keeps them itself."""
        if kind != "non-serializable-default":
            super().emit_warning(kind, detail)


def _json_schema(model: type[BaseModel], function: Callable[..., Any]) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = compact(
            model.model_json_schema(by_alias=True, schema_generator=SchemaGenerator)
        )
    except PydanticUserError as error:
        raise TypeError(f"{function.__qualname__}: {first_line(error)}") from error
    properties = schema.get("properties", {})
    for name, text in argument_descriptions(function).items():
        if name in properties:
            properties[name].setdefault("description", text)
    # "type" comes first, as in hand-written schemas.
    return {"type": "object", "properties": properties} | schema


def _validator(model: type[BaseModel], parameters: list[inspect.Parameter]) -> Validator:
    names = [parameter.name for parameter in parameters]

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            values = model.model_validate(arguments)
        except ValidationError as error:
            raise ArgumentsError(validation_sentence(error, names)) from None
        # A parameter left out keeps the function's own default object, not pydantic's copy.
        return {
            parameter.name: getattr(values, f"p{index}")
            for index, parameter in enumerate(parameters)
            if f"p{index}" in values.model_fields_set or parameter.default is parameter.empty
        }

    return validate


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().splitlines()[0]
