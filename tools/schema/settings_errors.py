"""One-sentence descriptions of errors in a configuration, with the allowed keys."""

import difflib
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from caesura.tools.schema.arguments import errors_sentence, path_text


def settings_sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """Return what pydantic found wrong with the settings `model`, naming the keys."""
    allowed = list(model.model_fields)
    return errors_sentence(error, lambda detail: _description(detail, allowed))


def unknown_key(key: str, allowed: list[str]) -> str:
    """Return the error text for an unknown key: the nearest key, and all allowed ones."""
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown key {key!r}; {hint}allowed: {', '.join(allowed)}"


def _description(detail: ErrorDetails, allowed: list[Any]) -> str:
    place = path_text(detail["loc"])
    if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
        return unknown_key(place, allowed)
    message = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    return f"{place}: {message}" if place else message
