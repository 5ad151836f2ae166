"""Validation of arguments against a JSON schema that the developer wrote."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry as References

from caesura.tools.schema.arguments import ArgumentsError, path_text, unknown_argument
from caesura.tools.schema.signature import Validator

MAX_CHECKS = 30_000
"""How many keywords of the schema may be checked for one call's arguments."""
_SCALARS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def schema_validator(parameters: Mapping[str, Any]) -> Validator:
    """Return a validator for a JSON schema (draft 2020-12) of type "object".

    Raises ValueError for another schema. Arguments that the schema does not name are allowed
    unless it sets `"additionalProperties": false`. References outside the schema are never
    fetched. Arguments that need more than MAX_CHECKS checks are refused: a schema with recursive
    references could need any number, and the checks block the event loop.
    """
    if parameters.get("type") != "object":
        raise ValueError(
            'parameters must be a JSON schema with "type": "object", '
            f"got {parameters.get('type')!r}"
        )
    try:
        Draft202012Validator.check_schema(parameters)
    except SchemaError as error:
        raise ValueError(f"parameters is not a valid JSON schema: {error.message}") from error
    # An empty set of references: the default one would fetch a remote "$ref".
    validator = _CountingValidator(parameters, registry=References())

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        arguments = _lenient(arguments, parameters.get("properties", {}))
        _LEFT.checks = MAX_CHECKS
        try:
            error = best_match(validator.iter_errors(arguments))
        except (_TooMany, RecursionError):
            raise ArgumentsError("the arguments take too long to check") from None
        if error is not None:
            raise ArgumentsError(_sentence(error, arguments, parameters))
        return arguments

    return validate


class _TooMany(Exception):
    pass


class _Left(threading.local):
    """How many checks are left for the call that this thread validates."""

    checks = 0


_LEFT = _Left()


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    """Return the check of a keyword, made to count against the limit."""

    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _LEFT.checks -= 1
        if _LEFT.checks < 0:
            raise _TooMany
        return check(validator, value, instance, schema)

    return checked


_CountingValidator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {name: _counted(check) for name, check in Draft202012Validator.VALIDATORS.items()},
)


def _lenient(arguments: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with strings parsed where the schema wants a number or boolean."""
    read = dict(arguments)
    for name, value in arguments.items():
        schema = properties.get(name)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        types = _SCALARS.get(kind) if isinstance(kind, str) else None
        if types is None or not isinstance(value, str):
            continue
        try:
            scalar = json.loads(value.strip())
        except (ValueError, RecursionError):
            continue
        if type(scalar) in types:
            read[name] = scalar
    return read


def _sentence(
    error: ValidationError, arguments: dict[str, Any], parameters: Mapping[str, Any]
) -> str:
    place = path_text(list(error.absolute_path))
    if error.validator == "required" and not place:
        missing = next(name for name in parameters["required"] if name not in arguments)
        return f"argument {missing!r}: field required"
    if error.validator == "additionalProperties" and not place:
        accepted = list(parameters.get("properties", {}))
        extra = next((name for name in arguments if name not in accepted), None)
        if extra is not None and error.validator_value is False:
            return unknown_argument(extra, accepted)
    return f"argument {place!r}: {error.message}" if place else error.message
