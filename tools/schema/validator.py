"""The validation of arguments against a JSON schema that the developer wrote."""

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
"""So often a keyword of the schema may be checked for one call's arguments."""
_SCALARS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def schema_validator(parameters: Mapping[str, Any]) -> Validator:
    """A validator for a JSON schema (draft 2020-12) of type "object".

    Raises ValueError when it is not one. What the schema allows is allowed: arguments that it
    does not name too, unless it says `"additionalProperties": false`. References outside the
    schema are never fetched. Arguments that take more than MAX_CHECKS checks do not fit it: a
    schema whose parts refer to one another can ask for any number, and this blocks.
    """
    if parameters.get("type") != "object":
        raise ValueError('parameters must be a JSON schema with "type": "object"')
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
    """How many checks the call that this thread works on has left."""

    checks = 0


_LEFT = _Left()


def _counted(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check of a keyword, which counts."""

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
    """The arguments, with numbers and booleans that were written as strings read as such."""
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
