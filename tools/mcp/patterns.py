"""JSON schemas of servers, made harmless."""

from typing import Any

_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")


def without_patterns(schema: Any) -> None:
    """Take the regular expressions out of a JSON schema, in place, however deep it is.

    One of a server's own could take for ever on an argument. So could a part that names its own
    dialect (`$schema`), whose checks nobody counts. A property that is called "pattern" stays.
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
                here.pop("$schema", None)  # would have a part checked by other rules than ours
            waiting += [(each, not names and key in _NAMED) for key, each in here.items()]
