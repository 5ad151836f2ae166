"""Prepares a model's Vega-Lite for drawing: checks its limits and fills in what is missing.

The data must be inside the specification; nothing is fetched. Models tend to leave out the
`encoding`, which is filled in from the types of the columns. Vega-Lite treats a field without a
type as nominal and sorts names alphabetically. Models mean the type of the data, and the order of
its rows. A default look is added too: size, padding, fonts and colours.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from caesura.tools.picture.markup import DrawingError

WIDTH = 640
HEIGHT = 400
_INK = "#24292f"
_GREY = "#6e7781"
_FAINT = "#e4e7eb"

CONFIG: dict[str, Any] = {
    "background": "white",
    "padding": 16,
    "font": "sans-serif",
    "title": {
        "fontSize": 17,
        "color": _INK,
        "anchor": "start",
        "offset": 14,
        "subtitleColor": _GREY,
    },
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titlePadding": 10,
        "labelColor": _INK,
        "titleColor": _GREY,
        "domainColor": _GREY,
        "tickColor": _GREY,
        "gridColor": _FAINT,
    },
    "legend": {"labelFontSize": 12, "titleFontSize": 12, "labelColor": _INK, "titleColor": _GREY},
    "header": {"labelFontSize": 12, "titleFontSize": 13, "labelColor": _INK, "titleColor": _GREY},
    "view": {"stroke": None, "continuousWidth": 320, "continuousHeight": 240, "step": 28},
    "bar": {"cornerRadiusEnd": 2},
    "line": {"strokeWidth": 2.5},
    "point": {"filled": True, "size": 60},
    "range": {"category": {"scheme": "tableau10"}},
}
_COMPOSED = ("facet", "hconcat", "vconcat", "concat", "repeat")
_FACETS = ("row", "column", "facet")


def styled(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the specification with a default size and look; its own values take precedence.

    A chart of several views side by side gets its size from its views.
    """
    config = spec.get("config")
    styled = spec | {"config": _merged(CONFIG, config if isinstance(config, dict) else {})}
    if not is_single(spec):
        return styled
    for name, pixels in (("width", WIDTH), ("height", HEIGHT)):
        if not isinstance(spec.get(name), int | float | dict):
            styled[name] = pixels
    return {"autosize": {"type": "fit", "contains": "padding"}} | styled


def is_single(spec: dict[str, Any]) -> bool:
    """Return whether the chart has one pair of axes, and not several views side by side."""
    encoding = spec.get("encoding")
    facets = isinstance(encoding, dict) and any(each in encoding for each in _FACETS)
    return not facets and not any(each in spec for each in _COMPOSED)


def _merged(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Return both dictionaries merged; where they differ, `theirs` wins."""
    merged = ours | theirs
    for name, value in theirs.items():
        if isinstance(value, dict) and isinstance(ours.get(name), dict):
            merged[name] = _merged(ours[name], value)
    return merged


TYPES = ("quantitative", "temporal", "ordinal", "nominal", "geojson")
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}.*)?)?")
_PATH = re.compile(r"[.\[\]\\'\"]")
_DERIVED = ("aggregate", "bin", "timeUnit")
_IN_ORDER_OF_ROWS = ("x", "y", "color", "fill", "stroke", "shape", "strokeDash")
"""Channels whose names come in the order of the rows; legends of one field are one if all do."""
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

    def part(self, part: Any, mark: str = "", typed: Collection[str] = ()) -> Any:
        """Return a view, or a container of views, with its encodings filled in.

        `typed` are the channels whose types the views around it give.
        """
        if isinstance(part, list):
            return [self.part(each, mark, typed) for each in part]
        if not isinstance(part, dict):
            return part
        mark = _mark(part) or mark
        channels = part.get("encoding")
        if isinstance(channels, dict):
            typed = {*typed, *(name for name, each in channels.items() if _has_type(each))}
        filled = {
            name: each if name in ("data", "datasets", "config") else self.part(each, mark, typed)
            for name, each in part.items()
        }
        if isinstance(channels, dict):
            filled["encoding"] = {
                name: [self._channel(name, one, mark, typed) for one in each]
                if isinstance(each, list)
                else self._channel(name, each, mark, typed)
                for name, each in filled["encoding"].items()
            }
        return filled

    def _channel(self, name: str, definition: Any, mark: str, typed: Collection[str]) -> Any:
        if isinstance(definition, str):
            definition = {"field": definition}
        if not isinstance(definition, dict) or not isinstance(definition.get("field"), str):
            return definition
        field = definition["field"]
        self._check(field)
        given = definition.get("type")
        known = given in TYPES or name in typed
        if not known and not any(definition.get(each) for each in _DERIVED):
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


def _has_type(definition: Any) -> bool:
    return isinstance(definition, dict) and definition.get("type") in TYPES


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


MAX_DEPTH = 50
MAX_VIEW_SIDE = 4_000
"""The largest width or height, in pixels, of a part of a chart."""
VIEWS = ("mark", "layer", "facet", "hconcat", "vconcat", "concat", "repeat")
MARKS = (
    *("arc", "area", "bar", "boxplot", "circle", "errorband", "errorbar", "geoshape", "line"),
    *("point", "rect", "rule", "square", "text", "tick", "trail"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_INLINE = 'put the data in, as {"values": [{"month": "May", "sales": 3}, ...]}'


def prepared(spec: Mapping[str, Any], max_rows: int) -> dict[str, Any]:
    """Return the specification to draw. Raises only DrawingError, for any JSON object."""
    reading = _Reading(max_rows)
    try:
        ready = reading.part(_clean(spec))
    except RecursionError:
        raise DrawingError("the chart's data is nested too deeply") from None
    for ignored in ("$schema", "usermeta"):
        ready.pop(ignored, None)
    if not any(ready.get(view) for view in VIEWS):
        raise DrawingError(f'the chart has no "mark"; {_one_of_the_marks()}')
    if not reading.has_data:
        raise DrawingError(f'the chart has no "data": {_INLINE}')
    return styled(completed(ready, reading.records))


class _Reading:
    """Reads one specification: makes a checked copy and counts its data."""

    def __init__(self, max_rows: int) -> None:
        self.has_data = False
        self.records: list[dict[str, Any]] = []
        self._max_rows = max_rows
        self._rows = 0

    def part(self, value: Any, key: str = "", depth: int = 0, *, style: bool = False) -> Any:
        """Return a checked copy of a part of the specification; rows of data are not copied.

        key: the part's key. style: the part belongs to "config", where names mean other things.
        """
        if depth > MAX_DEPTH:
            raise DrawingError(f"the chart is nested deeper than {MAX_DEPTH} levels")
        if not style:
            match key:
                case "data" if value is not None:
                    return self._data(value)
                case "datasets" if isinstance(value, dict):
                    return {name: self._table(rows) for name, rows in value.items()}
                case "keyvals" if isinstance(value, dict):  # of an imputation
                    self._count(_steps(value))
                case "mark":
                    _check_mark(value)
                case "width" | "height" if isinstance(value, int | float):
                    return min(max(value, 1), MAX_VIEW_SIDE)
        if isinstance(value, list):
            return [self.part(each, "", depth + 1, style=style) for each in value]
        if not isinstance(value, dict):
            return value
        _check_nothing_is_fetched(value)
        return {
            name: self.part(each, name, depth + 1, style=style or name in ("config", "select"))
            for name, each in value.items()
        }

    def _data(self, data: Any) -> Any:
        """Return a checked source of data, which may be a bare list."""
        self.has_data = True
        if not isinstance(data, dict):
            data = {"values": data}
        _check_nothing_is_fetched(data)
        if "sequence" in data:
            self._count(_steps(data["sequence"]))
        if "values" not in data:
            return data
        values = data["values"]
        if isinstance(values, dict) and "format" not in data:
            values = _rows_of_columns(values)
        return data | {"values": self._table(values)}

    def _table(self, values: Any) -> Any:
        """Return counted rows; plain values become rows of `x`, their index, and `y`.

        Vega-Lite calls them `data`, so they have that name too.
        """
        if isinstance(values, str):
            self._count(values.count("\n"))
        if not isinstance(values, list):
            return values
        self._count(len(values))
        if all(isinstance(each, int | float | str) for each in values):
            values = [
                {"x": number, "y": each, "data": each} for number, each in enumerate(values, 1)
            ]
        rows = [each for each in values if isinstance(each, dict)]
        self.records += rows
        return rows

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows > self._max_rows:
            raise DrawingError(
                f"the chart has more than {self._max_rows} rows of data: aggregate the data first"
            )


def _clean(value: Any) -> Any:
    """Return the value without control characters, which crash the text measuring library."""
    if isinstance(value, str):
        return _CONTROL.sub("", value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {_clean(name): _clean(each) for name, each in value.items()}
    return value


def _check_nothing_is_fetched(part: Mapping[str, Any]) -> None:
    if "url" in part:
        raise DrawingError(f'the chart must not fetch anything: leave "url" out and {_INLINE}')


def _check_mark(mark: Any) -> None:
    name = mark.get("type") if isinstance(mark, dict) else mark
    if name == "image":
        raise DrawingError(
            "the mark 'image' fetches pictures, which a chart must not: " + _one_of_the_marks()
        )
    if not isinstance(name, str) or name not in MARKS:
        raise DrawingError(f"unknown mark {str(name)[:40]!r}; {_one_of_the_marks()}")


def _one_of_the_marks() -> str:
    return f"choose from: {', '.join(MARKS)}"


def _rows_of_columns(columns: Mapping[str, Any]) -> Any:
    """Return rows from an object of equally long lists; other values stay as they are."""
    lists = list(columns.values())
    if not lists or not all(isinstance(each, list) for each in lists):
        return columns
    if len({len(each) for each in lists}) > 1:
        raise DrawingError("the data's columns must have equal lengths")
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _steps(sequence: Any) -> int:
    """Return a generated sequence's number of rows. Raises DrawingError for an endless one."""
    try:
        start, stop, step = sequence.get("start", 0), sequence["stop"], sequence.get("step", 1)
        return max(0, int((stop - start) / step))
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
        raise DrawingError("a sequence needs the numbers start, stop and step") from None
