"""Fills in the `encoding` that a specification leaves out, from the types of its columns.

Vega-Lite treats a field without a type as nominal and sorts names alphabetically. Models mean the
type of the data, and the order of its rows.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from caesura.tools.picture.markup import DrawingError
from caesura.tools.picture.style import is_single

TYPES = ("quantitative", "temporal", "ordinal", "nominal", "geojson")
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}.*)?)?")
_PATH = re.compile(r"[.\[\]\\'\"]")
_DERIVED = ("aggregate", "bin", "timeUnit")
_IN_ORDER_OF_ROWS = ("x", "y", "color")
_LABEL_PIXELS = 560
_CHARACTER_PIXELS = 7.5
_MAX_NAMED = 12

Rows = Sequence[Mapping[str, Any]]


def completed(spec: dict[str, Any], rows: Rows) -> dict[str, Any]:
    """Return the specification with its encodings filled in from the data's rows.

    Raises DrawingError for a field that is not a column and that no transform can have made.
    """
    kinds = {name: _kind(rows, name) for name in _columns(rows)}
    if "mark" in spec and not spec.get("encoding") and _mark(spec) != "geoshape":
        spec = spec | {"encoding": _default(_mark(spec), kinds)}
    strict = bool(kinds) and not _mentions(spec, ("transform", "repeat", "format"))
    filling = _Filling(rows, kinds, strict=strict, single=is_single(spec))
    return cast(dict[str, Any], filling.part(spec))


class _Filling:
    """Fills in the encodings of one specification."""

    def __init__(self, rows: Rows, kinds: dict[str, str], *, strict: bool, single: bool) -> None:
        self._rows = rows
        self._kinds = kinds
        self._strict = strict
        self._single = single

    def part(self, part: Any, mark: str = "") -> Any:
        """Return a view, or a container of views, with its encodings filled in."""
        if isinstance(part, list):
            return [self.part(each, mark) for each in part]
        if not isinstance(part, dict):
            return part
        mark = _mark(part) or mark
        filled = {
            name: self.part(each, mark) if name not in ("data", "datasets", "config") else each
            for name, each in part.items()
        }
        channels = filled.get("encoding")
        if isinstance(channels, dict):
            filled["encoding"] = {
                name: [self._channel(name, one, mark) for one in each]
                if isinstance(each, list)
                else self._channel(name, each, mark)
                for name, each in channels.items()
            }
        return filled

    def _channel(self, name: str, definition: Any, mark: str) -> Any:
        if isinstance(definition, str):
            definition = {"field": definition}
        if not isinstance(definition, dict) or not isinstance(definition.get("field"), str):
            return definition
        field = definition["field"]
        self._check(field)
        given = definition.get("type")
        if given not in TYPES and not any(definition.get(each) for each in _DERIVED):
            kind = self._kinds.get(field, "quantitative" if name == "y" else "nominal")
            if mark == "bar" and name == "x" and kind == "quantitative":
                kind = "ordinal"  # a bar over a number, such as a year, needs a discrete scale
            definition = definition | {"type": kind}
        if definition.get("type") in ("nominal", "ordinal"):
            if name in _IN_ORDER_OF_ROWS and self._kinds.get(field) == "nominal":
                definition = {"sort": None} | definition
            if name == "x" and self._single and field in self._kinds:
                definition = {"axis": {"labelAngle": self._angle(field)}} | definition
        return self._escaped(definition)

    def _escaped(self, definition: dict[str, Any]) -> dict[str, Any]:
        """Return the definition with marks in its column's name that Vega-Lite takes for a path."""
        field = definition["field"]
        if field not in self._kinds or not _PATH.search(field):
            return definition
        return {"title": field} | definition | {"field": _PATH.sub(r"\\\g<0>", field)}

    def _check(self, field: str) -> None:
        column = re.split(r"[.\[]", field, maxsplit=1)[0]
        if self._strict and "\\" not in field and not {field, column} & self._kinds.keys():
            known = ", ".join(list(self._kinds)[:_MAX_NAMED])
            raise DrawingError(f"the data has no column {field[:60]!r}: its columns are {known}")

    def _angle(self, field: str) -> int:
        """Return the angle of the x axis labels: horizontal while they fit side by side."""
        names = {str(row.get(field)) for row in self._rows}
        pixels = len(names) * (max(map(len, names)) + 2) * _CHARACTER_PIXELS
        return 0 if pixels <= _LABEL_PIXELS else -45


def _default(mark: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the default: the first column along x, the second along y; a pie's by colour."""
    first, *others = [*kinds][:2] or ("",)
    if not first:
        raise DrawingError('the chart has no "encoding", and no rows of data to derive it from')
    size: dict[str, Any] = {"field": others[0]} if others else {"aggregate": "count"}
    if mark == "arc":
        return {"theta": size, "color": {"field": first}}
    return {"x": {"field": first}, "y": size}


def _columns(rows: Rows) -> list[str]:
    """Return the columns' names, in the order of their first occurrence."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _kind(rows: Rows, name: str) -> str:
    """Return the Vega-Lite type of a column's values."""
    values = [row[name] for row in rows if row.get(name) is not None]
    if values and all(isinstance(each, int | float) for each in values):
        return "nominal" if any(isinstance(each, bool) for each in values) else "quantitative"
    dates = values and all(isinstance(each, str) and _DATE.fullmatch(each) for each in values)
    return "temporal" if dates else "nominal"


def _mark(view: Mapping[str, Any]) -> str:
    mark = view.get("mark")
    name = mark.get("type") if isinstance(mark, dict) else mark
    return name if isinstance(name, str) else ""


def _mentions(part: Any, names: Sequence[str]) -> bool:
    """Return whether any of these keys occurs outside of the rows."""
    if isinstance(part, list):
        return any(_mentions(each, names) for each in part)
    if not isinstance(part, dict):
        return False
    return any(
        key in names or (key != "values" and _mentions(each, names)) for key, each in part.items()
    )
