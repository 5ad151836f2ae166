"""Values that break readers, values by JSON schema, and mutations of valid data."""

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 16, 255, 256, 2**31, 2**32, -(2**63), 2**63, 2**64, 10**30, 10**400),
    *(0.5, -0.0, 1e-308, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
)
TEXTS = (
    *("", " ", "\0", "\n", "a", "user", "tool", "null", "1e999", "../../etc/passwd", "%s%n", "é"),
    *("\ud800", "\udfff", "￿", "\U0010ffff", "‮", "<|im_end|>", "</tool_call>", "[calc(1) ->"),
    *("a" * 300, "a" * 70_000, "(a+)+$", "http://127.0.0.1:1/", "data:image/png;base64,AAAA"),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": ""}, {"a": {"a": {"a": 1}}})

Path = tuple[Any, ...]


def nasty(rng: Random) -> Any:
    """Return a value of any kind that somebody has been surprised by."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(NUMBERS)
    if kind == 1:
        return rng.choice(TEXTS)
    if kind == 2:
        return copy.deepcopy(rng.choice(OTHERS))
    if kind == 3:
        return nested(rng.choice([3, 30, 300]), rng)
    return [nasty(rng) for _ in range(rng.randrange(3))]


def nested(depth: int, rng: Random) -> Any:
    """Return lists or objects in each other."""
    value: Any = rng.choice([1, "x", None])
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def mutated(valid: Any, rng: Random, most: int = 3) -> Any:
    """Return valid data with up to `most` things changed, dropped, moved, doubled or added."""
    data = copy.deepcopy(valid)
    for _ in range(rng.randint(1, most)):
        try:
            places = list(_places(data, ()))
            place = rng.choice(places)
            data = rng.choice(CHANGES)(data, place, places, rng)
        except RecursionError:  # parts that were moved into each other: too deep to change further
            break
    return data


def _places(data: Any, path: Path) -> list[Path]:
    found = [path]
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            found += _places(value, (*path, key))
    return found[:400]


def _at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def _put(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    _at(data, path[:-1])[path[-1]] = value
    return data


def _replace(data: Any, path: Path, _: list[Path], rng: Random) -> Any:
    return _put(data, path, nasty(rng))


def _near(data: Any, path: Path, _: list[Path], rng: Random) -> Any:
    """Change a value a little: numbers in size, texts in a character, lists in length."""
    value = _at(data, path)
    if isinstance(value, bool) or value is None:
        return _put(data, path, rng.choice([True, False, None, 0, 1, "true"]))
    if isinstance(value, int | float):
        return _put(data, path, rng.choice(_near_number(value)))
    if isinstance(value, str):
        cut = rng.randrange(len(value) + 1)
        return _put(data, path, value[:cut] + rng.choice(TEXTS) + value[cut:])
    if isinstance(value, list):
        return _put(data, path, value * rng.choice([0, 2, 50]))
    return _put(data, path, {**value, rng.choice(TEXTS): nasty(rng)})


def _near_number(value: float) -> list[Any]:
    near = [value + 1, value - 1, -value, value * 2**40, str(value)]
    with suppress(OverflowError):  # an integer beyond all floats
        near += [value / 3, float(value)]
    return near


def _drop(data: Any, path: Path, _: list[Path], rng: Random) -> Any:
    if not path:
        return data
    del _at(data, path[:-1])[path[-1]]
    return data


def _move(data: Any, path: Path, places: list[Path], rng: Random) -> Any:
    """Put another part of the data in a place, where types often do not fit."""
    return _put(data, path, copy.deepcopy(_at(data, rng.choice(places))))


CHANGES: tuple[Callable[[Any, Path, list[Path], Random], Any], ...] = (
    *(_replace, _near, _near, _drop, _move),
)


def of_schema(schema: dict[str, Any], rng: Random, depth: int = 0) -> Any:
    """Return a value of a JSON schema of pydantic's; one part in twenty does not keep to it."""
    return _Maker(schema.get("$defs", {}), rng).make(schema, depth)


class _Maker:
    def __init__(self, defs: dict[str, Any], rng: Random) -> None:
        self._defs, self._rng = defs, rng

    def make(self, schema: Any, depth: int) -> Any:
        rng = self._rng
        if not isinstance(schema, dict) or depth > 8 or rng.random() < 0.05:
            return nasty(rng)
        if "$ref" in schema:
            return self.make(self._defs[schema["$ref"].rpartition("/")[2]], depth)
        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return self.make(rng.choice(schema[several]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        return self._of_type(schema, depth)

    def _of_type(self, schema: dict[str, Any], depth: int) -> Any:
        rng, kind = self._rng, schema.get("type")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            count = rng.choice([0, 1, 1, 2, 5])
            return [self.make(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind == "string":
            return rng.choice(["a", "user", "search", "text", *TEXTS])
        if kind in ("integer", "number"):
            edges = [schema[key] for key in ("minimum", "maximum") if key in schema]
            return rng.choice([*edges, 0, 1, 2, 0.5, *NUMBERS])
        if kind == "boolean":
            return rng.random() < 0.5
        return None if kind == "null" else nasty(rng)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        rng, made = self._rng, {}
        wanted = set(schema.get("required", ()))
        for name, part in schema.get("properties", {}).items():
            if name in wanted or rng.random() < 0.2:
                made[name] = self.make(part, depth + 1)
        if schema.get("additionalProperties") and rng.random() < 0.5:
            made[rng.choice(TEXTS)] = nasty(rng)
        return made
