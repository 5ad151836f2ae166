"""Default look of charts: size, padding, fonts and colours that a specification leaves out."""

from typing import Any

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
