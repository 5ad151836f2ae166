"""What is wrong with a configuration, in one sentence that says what is allowed."""

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from caesura.tools.schema.arguments import errors_sentence, path_text


def settings_sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """What pydantic found wrong with the settings `model`, naming the keys."""
    allowed = list(model.model_fields)
    return errors_sentence(error, lambda detail: _told(detail, allowed))


def unknown_key(key: str, allowed: list[str]) -> str:
    """The sentence for a key that there is not: the nearest one, and all."""
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no {key!r}; {hint}allowed: {', '.join(allowed)}"


def _told(detail: ErrorDetails, allowed: list[Any]) -> str:
    place = path_text(detail["loc"])
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
        return unknown_key(place, allowed)
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{place}: {message}" if place else message
