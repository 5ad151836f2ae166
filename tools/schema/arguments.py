"""A call's arguments: reading the model's JSON text, and describing what is wrong with it.

Two usual mistakes of models are forgiven: an empty text or `null` for "no arguments", and an
object written inside a JSON string.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

MAX_ERRORS_TOLD = 3
"""How many errors of one validation are described at once."""

_JSON_TYPE = {
    bool: "a boolean",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a string",
}


class ArgumentsError(ValueError):
    """A call's arguments do not fit its tool. The message is one sentence, for the model."""


def arguments_object(text: str) -> dict[str, Any]:
    """Return the object in the arguments' JSON text.

    An empty text or `null` gives {}; a JSON string gives the object that is written in it.
    Raises ArgumentsError for anything else.
    """
    value = _json(text)
    if isinstance(value, str):
        try:
            value = _json(value)
        except ArgumentsError:
            value = str(value)  # a plain string: the error below reports it
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ArgumentsError(f"arguments must be a JSON object, not {_JSON_TYPE[type(value)]}")
    return value


def validation_sentence(error: "ValidationError", accepted: list[str]) -> str:
    """Return what pydantic found wrong, in one sentence that names the arguments.

    error: what validation raised; accepted: the names of the tool's arguments.
    """
    return errors_sentence(error, lambda detail: _detail(detail, accepted))


def errors_sentence(error: "ValidationError", describe: "Callable[[ErrorDetails], str]") -> str:
    """Return a description of the first errors of a validation, and how many more there are.

    describe: returns the words for one error.
    """
    details = error.errors(include_url=False, include_context=False, include_input=False)
    told = [describe(detail) for detail in details[:MAX_ERRORS_TOLD]]
    if len(details) > MAX_ERRORS_TOLD:
        told.append(f"and {len(details) - MAX_ERRORS_TOLD} more")
    return "; ".join(told)


def unknown_argument(name: str, accepted: list[str]) -> str:
    """Return the error text for an argument that the tool does not have."""
    known = f"accepted: {', '.join(accepted)}" if accepted else "the tool takes no arguments"
    return f"unknown argument {name!r} ({known})"


def path_text(parts: tuple[str | int, ...] | list[str | int]) -> str:
    """Return the place of a value inside the arguments: `filter.ids[2]`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _json(text: str) -> Any:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ArgumentsError(
            f"arguments are not valid JSON: {error.msg} at character {error.pos}"
        ) from None
    except (ValueError, RecursionError):
        # An integer of thousands of digits, or arrays nested thousands deep.
        raise ArgumentsError(
            "arguments are not valid JSON: a number is too long or the nesting too deep"
        ) from None


def _detail(detail: "ErrorDetails", accepted: list[str]) -> str:
    place = path_text(detail["loc"])
    if detail["type"] == "extra_forbidden":
        if len(detail["loc"]) == 1:
            return unknown_argument(place, accepted)
        return f"unknown argument {place!r}"
    message = detail["msg"][:1].lower() + detail["msg"][1:]
    return f"argument {place!r}: {message}" if place else message
