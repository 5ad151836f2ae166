"""Removal of the parts of a server's JSON schema that would hinder its validation."""

from typing import Any

from caesura.tools.schema.validator import lost_references, subschemas


def without_patterns(schema: Any) -> None:
    """Remove the regular expressions from a JSON schema, in place, at any depth.

    A server's expression could take for ever on an argument. So could a part with its own dialect
    (`$schema`), whose checks are not counted. A property that is named "pattern" stays.
    """
    for part in subschemas(schema):
        part.pop("pattern", None)
        part.pop("patternProperties", None)
        part.pop("$schema", None)  # it would bypass our counting checks


def without_lost_references(schema: dict[str, Any]) -> list[str]:
    """Remove the references that lead nowhere from a JSON schema, in place, and return them.

    Such a part then takes any value, which the server checks itself.
    """
    return [part.pop("$ref") for part in lost_references(schema)]
