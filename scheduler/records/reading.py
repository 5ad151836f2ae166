"""Read a record from plain data, which an older version or another program may have written."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from caesura.scheduler.records.parts import Record
from caesura.scheduler.records.schema import KINDS

Converter = Callable[[Any], Any]
R = TypeVar("R", bound=Record)


class RecordError(ValueError):
    """A record lacks a required field, or has a value of the wrong type."""


def parse(entry: Mapping[str, Any]) -> Record | None:
    """Return the record that `entry` describes; None for an unknown kind.

    Unknown fields are ignored, and missing optional fields get their defaults. Raises
    `RecordError` for a missing required field and for a value of the wrong type.
    """
    kind = KINDS.get(str(entry.get("kind")))
    return None if kind is None else read(kind, entry)


def read(kind: type[R], entry: Mapping[str, Any]) -> R:
    """Return `entry` as a record of this kind; raises `RecordError` as `parse` does."""
    values: dict[str, Any] = {}
    for name, convert, needed in _fields_of(kind):
        if name not in entry:
            if needed:
                raise RecordError(f"a record of kind {kind.kind!r} lacks {name!r}: {entry!r:.200}")
            continue
        try:
            values[name] = convert(entry[name])
        except (TypeError, ValueError, KeyError) as error:
            raise RecordError(
                f"a record of kind {kind.kind!r} has {name}={entry[name]!r:.80}: {error}"
            ) from error
    return kind(**values)


_FIELDS: dict[Any, tuple[tuple[str, Converter, bool], ...]] = {}


def _fields_of(kind: Any) -> tuple[tuple[str, Converter, bool], ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = _make_fields(kind)
    return _FIELDS[kind]


def _make_fields(kind: Any) -> tuple[tuple[str, Converter, bool], ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        (
            each.name,
            _converter(hints[each.name]),
            each.default is MISSING and each.default_factory is MISSING,
        )
        for each in fields(kind)
    )


def _converter(hint: Any) -> Converter:
    origin = get_origin(hint)
    if origin is Annotated:
        return _converter(get_args(hint)[0])
    if origin in (Union, UnionType):
        (inner,) = (_converter(each) for each in get_args(hint) if each is not NoneType)
        return lambda value: None if value is None else inner(value)
    if is_dataclass(hint):
        return lambda value: _part(hint, value)
    if origin is tuple:
        each = _row(get_args(hint)[0])
        return lambda value: tuple(map(each, _sequence(value)))
    if origin is list:
        return _column(get_args(hint)[0])
    return _PLAIN[origin or hint]


def _part(kind: Any, value: Any) -> Any:
    """Return a nested part of a record; missing fields get their defaults."""
    known = {name: convert for name, convert, _ in _fields_of(kind)}
    given = _mapping(value)
    return kind(**{name: known[name](given[name]) for name in known if name in given})


def _row(hint: Any) -> Converter:
    """Return a converter for a row, a named tuple; older files have only its first fields."""
    if not (isinstance(hint, type) and issubclass(hint, tuple)):
        return _converter(hint)
    hints = get_type_hints(hint, include_extras=True)
    converters = [_converter(each) for each in hints.values()]

    def row(value: Any) -> Any:
        given = _sequence(value)
        return hint(*(convert(each) for convert, each in zip(converters, given, strict=False)))

    return row


def _column(hint: Any) -> Converter:
    check = _text if hint is str else _number

    def column(value: Any) -> list[Any]:
        given = _sequence(value)
        for each in given:
            check(each)
        return list(given)

    return column


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise TypeError("it must be a number")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("it must be a whole number")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it must be a text")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it must be true or false")
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("it must be a list")
    return list(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("it must be an object")
    return value


_PLAIN: dict[Any, Converter] = {
    float: _number,
    int: _whole,
    str: _text,
    bool: _flag,
    Mapping: _mapping,
}
