"""Makes what is selected by name: `name`, or `name:key=value,key=value` with parameters.

A name with a dot in it is imported (`package.module.Class`), so that what this project does not
have can be plugged in from outside.
"""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")

TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
}
"""Annotations that a value is held to, and what that asks for."""


def make_named(spec: str, known: Mapping[str, Callable[..., T]], what: str) -> T:
    """Call what `spec` names with the parameters that it gives, as keywords.

    Values are whole numbers, numbers, truths (`true`, `yes`, `false`, `no`) or text: as the
    parameter's annotation asks, or as they look where it asks for nothing of these. What is
    imported is not checked to be a `T`. Raises `ValueError`, which begins with `what` and the
    spec, for a name that is not known or cannot be imported, for parameters that there are not,
    and for values that are not accepted.
    """
    name, colon, rest = spec.partition(":")
    try:
        make = _find(name.strip(), known)
        arguments = _arguments(make, _pairs(rest)) if colon else {}
        return make(**arguments)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{what} {spec!r}: {error}") from error


def _find(name: str, known: Mapping[str, Callable[..., T]]) -> Callable[..., T]:
    if name in known:
        return known[name]
    module, _, attribute = name.rpartition(".")
    if not (module and attribute):
        raise ValueError(f"there is no {name!r}, but {', '.join(known)}, or package.module.Class")
    try:
        found: Callable[..., T] = getattr(import_module(module), attribute)
    except Exception as error:  # a module may raise anything while it is imported
        raise ValueError(f"cannot import {name}: {error!r}") from error
    if not callable(found):
        raise ValueError(f"{name} is nothing that can be called")
    return found


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if not (key and value):
            raise ValueError(f"{item!r} is not key=value")
        if key in pairs:
            raise ValueError(f"{key} is given twice")
        pairs[key] = value
    return pairs


def _arguments(make: Callable[..., Any], pairs: Mapping[str, str]) -> dict[str, Any]:
    arguments, keywords, open_ended = {}, {}, False
    for one in inspect.signature(make).parameters.values():
        open_ended = open_ended or one.kind is one.VAR_KEYWORD
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            keywords[one.name] = one.annotation
    for key, text in pairs.items():
        if key not in keywords and not open_ended:
            there = f"there are {', '.join(keywords)}" if keywords else "it takes none"
            raise ValueError(f"no parameter {key!r}; {there}")
        arguments[key] = _value(key, text, keywords.get(key))
    return arguments


def _value(key: str, text: str, annotation: Any) -> bool | int | float | str:
    # An annotation is a class, or its name where a module postpones the evaluation of them.
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if kind == "str":
        return text
    value = plain(text)
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in KINDS and type(value).__name__ != kind:
        raise ValueError(f"{key} is {KINDS[kind]}, not {text!r}")
    return value


def plain(text: str) -> bool | int | float | str:
    """Return the truth, the number or the text that a value looks like."""
    if text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
