"""Validation of arguments against a JSON schema that the developer wrote."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry as References
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from caesura.tools.schema.arguments import ArgumentsError, path_text, unknown_argument
from caesura.tools.schema.signature import Validator

MAX_CHECKS = 30_000
"""How many keywords of the schema may be checked for one call's arguments."""


def schema_validator(parameters: Mapping[str, Any]) -> Validator:
    """Return a validator for a JSON schema (draft 2020-12) of type "object".

    Raises ValueError for another schema. Arguments that the schema does not name are allowed
    unless it sets `"additionalProperties": false`. References outside the schema are refused, and
    never fetched. Arguments that need more than MAX_CHECKS checks are refused: a schema with
    recursive references could need any number, and the checks block the event loop.
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
    if lost := lost_references(parameters):
        raise ValueError(
            f"parameters refers to {lost[0]['$ref']!r}, which it does not hold: add it there, or"
            " leave the reference out"
        )
    # An empty set of references: the default one would fetch a remote "$ref".
    validator = _CountingValidator(parameters, registry=References())

    def errors_of(arguments: dict[str, Any]) -> list[ValidationError]:
        _LEFT.checks = MAX_CHECKS
        try:
            return [*validator.iter_errors(arguments)]
        except (_TooMany, RecursionError):
            raise ArgumentsError("the arguments take too long to check") from None

    def validate(arguments: dict[str, Any]) -> dict[str, Any]:
        errors = errors_of(arguments)
        read = _parsed(arguments, _refused(errors))
        if read != arguments:
            still = _refused(errors_of(read))
            arguments = {name: (arguments if name in still else read)[name] for name in read}
            errors = errors_of(arguments)
        if (error := best_match(errors)) is not None:
            raise ArgumentsError(_sentence(error, arguments, parameters))
        return arguments

    return validate


_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON schema whose keys are keywords, and not names, at any depth.

    What a caller removes from an object before it asks for the next one is not looked at.
    """
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        here, names = waiting.pop()
        if isinstance(here, list):
            waiting += [(each, False) for each in here]
        elif isinstance(here, dict):
            if not names:
                yield here
            waiting += [(each, not names and key in _NAMED) for key, each in here.items()]


def lost_references(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a schema whose `$ref` leads to nothing that the schema holds.

    A schema with an `$id` in it has none, since its references begin elsewhere.
    """
    parts = [*subschemas(schema)]
    if any("$id" in part for part in parts):
        return []
    resource = DRAFT202012.create_resource(dict(schema))
    resolver = References().with_resource("", resource).resolver()

    def is_lost(reference: Any) -> bool:
        try:
            return isinstance(reference, str) and resolver.lookup(reference) is None
        except (Unresolvable, ValueError):
            return True

    return [part for part in parts if is_lost(part.get("$ref"))]


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


def _parsed(arguments: dict[str, Any], refused: set[Any]) -> dict[str, Any]:
    """Return the arguments, with those strings read as JSON that the schema refuses."""
    read = dict(arguments)
    for name in refused & arguments.keys():
        if isinstance(arguments[name], str):
            try:
                read[name] = json.loads(arguments[name].strip(), parse_constant=_no_constant)
            except (ValueError, RecursionError):
                continue
    return read


def _no_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _refused(errors: Iterable[ValidationError]) -> set[Any]:
    """Return the names of the arguments whose values are refused."""
    return {each.absolute_path[0] for each in _all(errors) if each.absolute_path}


def _all(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Yield errors, and those within the branches of combinations."""
    for error in errors:
        yield error
        yield from _all(error.context or ())


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
