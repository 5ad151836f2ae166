"""Removal of the parts of a server's JSON schema that could hang its validation."""

from typing import Any

_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")


def without_patterns(schema: Any) -> None:
    """Remove the regular expressions from a JSON schema, in place, at any depth.

    A server's expression could take for ever on an argument. So could a part with its own dialect
    (`$schema`), whose checks are not counted. A property that is named "pattern" stays.
    """
    waiting: list[tuple[Any, bool]] = [(schema, False)]
    while waiting:
        here, names = waiting.pop()  # whether its keys are names, and not keywords
        if isinstance(here, list):
            waiting += [(each, False) for each in here]
        elif isinstance(here, dict):
            if not names:
                here.pop("pattern", None)
                here.pop("patternProperties", None)
                here.pop("$schema", None)  # it would bypass our counting checks
            waiting += [(each, not names and key in _NAMED) for key, each in here.items()]
