"""Prepares a model's Vega-Lite for drawing: checks its limits and fills in what is missing.

The data must be inside the specification; nothing is fetched. `encoding` fills in what models
tend to leave out, and `style` adds a default look.
"""

import re
from collections.abc import Mapping
from typing import Any

from caesura.tools.picture.encoding import completed
from caesura.tools.picture.markup import DrawingError
from caesura.tools.picture.style import styled

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
