"""Errors of pydantic in words, with the path of the wrong field."""

from pydantic import ValidationError

from caesura.runtime.server.http.errors import ApiError, invalid


def in_words(error: ValidationError) -> ApiError:
    """Return the first validation error as an `ApiError` with the path of its field."""
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return invalid(f"The body is not valid JSON: {first['msg'].partition(': ')[2]}.")
    path = _path(first["loc"])
    if not path:
        return invalid("The body must be a JSON object.")
    if first["type"] == "missing":
        return invalid(f"{path} is missing.", path)
    if first["type"] == "extra_forbidden":
        return invalid(f"{path} is not a field that this server knows: leave it out.", path)
    if first["type"] in ("too_short", "string_too_short"):
        return invalid(f"{path} must not be empty.", path)
    reason = first["msg"].removeprefix("Value error, ")
    return invalid(f"{path}: {reason[:1].lower()}{reason[1:]}.", path)


def _path(location: tuple[int | str, ...]) -> str:
    """Return a path such as `messages[0].content`, without pydantic's names of union members.

    The members are classes, whose names begin with a capital, and literals in brackets.
    """
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.isidentifier() and not step[:1].isupper():
            path += f".{step}"
    return path.lstrip(".")
