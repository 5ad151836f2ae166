"""JSON schemas of servers, made harmless."""

from typing import Any

_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")


def without_patterns(schema: Any) -> None:
    """Take the regular expressions out of a JSON schema, in place, however deep it is.

    One of a server's own could take for ever on an argument or on its own result. A property
    that is called "pattern" stays.
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
            waiting += [(each, not names and key in _NAMED) for key, each in here.items()]
