"""Construct an object from a spec: `name`, or `name:key=value,key=value` with parameters.

A name with a dot in it is imported (`package.module.Class`), so that other packages can add their
own.
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
"""The annotations that values are checked against, and their names in errors."""


def make_named(spec: str, known: Mapping[str, Callable[..., T]], what: str) -> T:
    """Return the object that `spec` names, called with the spec's parameters as keywords.

    Values are whole numbers, numbers, truths (`true`, `yes`, `false`, `no`) or text. The
    parameter's annotation decides which; without one of these annotations, the value's look does.
    An imported object is not checked to be a `T`. Raises `ValueError`, which begins with `what`
    and the spec, for an unknown name, a failed import, an unknown parameter, or a wrong value.
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
        raise ValueError(
            f"unknown name {name!r}; choose from: {', '.join(known)}, or package.module.Class"
        )
    try:
        found: Callable[..., T] = getattr(import_module(module), attribute)
    except Exception as error:  # an imported module can raise any exception
        raise ValueError(f"cannot import {name}: {error!r}") from error
    if not callable(found):
        raise ValueError(f"{name} is a {type(found).__name__} and cannot be called: name a class")
    return found


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in text.split(","):
        key, _, value = (part.strip() for part in item.partition("="))
        if not (key and value):
            raise ValueError(f"a parameter must be key=value, got {item!r}")
        if key in pairs:
            raise ValueError(f"parameter {key} is given twice: remove one")
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
            there = f"choose from: {', '.join(keywords)}" if keywords else "it takes none"
            raise ValueError(f"unknown parameter {key!r}; {there}")
        arguments[key] = _value(key, text, keywords.get(key))
    return arguments


def _value(key: str, text: str, annotation: Any) -> bool | int | float | str:
    # An annotation is a class, or its name in modules that postpone the evaluation of annotations.
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if kind == "str":
        return text
    value = plain(text)
    if kind == "float" and type(value) is int:
        return float(value)
    if kind in KINDS and type(value).__name__ != kind:
        raise ValueError(f"{key} must be {KINDS[kind]}, got {text!r}")
    return value


def plain(text: str) -> bool | int | float | str:
    """Return the truth value, the number or the text that `text` looks like."""
    if text.lower() in TRUTHS:
        return TRUTHS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
