"""Drawing in a worker process: vl-convert turns charts and SVG into PNG, in bounded memory.

vl-convert draws SVG with resvg and includes fonts, so that text appears on machines without any.
"""

import base64
import functools
import resource
from typing import Any

from caesura.tools.picture.markup import DrawingError, safe_drawing
from caesura.tools.picture.vegalite import prepared

MAX_MEMORY_BYTES = 2**30
"""Limit for the process's allocations; vl-convert's JavaScript engine needs over 400 MiB."""
MAX_CHART_CHARACTERS = 20_000_000
MAX_CHART_ELEMENTS = 200_000


def svg(text: str, max_side: int) -> str:
    """Return the SVG as PNG in base64. Raises DrawingError."""
    _bounded()
    return _png(text, max_side)


def chart(spec: dict[str, Any], max_rows: int, max_side: int) -> str:
    """Return the Vega-Lite specification's chart as PNG in base64. Raises DrawingError."""
    import vl_convert

    _bounded()
    ready = prepared(spec, max_rows)
    try:
        drawn = vl_convert.vegalite_to_svg(ready, allowed_base_urls=[])
    except (ValueError, RuntimeError) as error:
        raise DrawingError(f"the chart cannot be drawn: {_reason(error)}") from None
    return _png(
        drawn,
        max_side,
        max_characters=MAX_CHART_CHARACTERS,
        max_elements=MAX_CHART_ELEMENTS,
    )


def _png(text: str, max_side: int, **limits: int) -> str:
    import vl_convert

    drawing = safe_drawing(text, max_side=max_side, **limits)
    try:
        return base64.b64encode(vl_convert.svg_to_png(drawing.svg)).decode()
    except (ValueError, RuntimeError) as error:
        raise DrawingError(f"the SVG cannot be drawn: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return the error's message without the library's own prefix and stack trace."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.endswith("failed:")]
    text = (told or lines)[0].removeprefix("Vega-Lite to SVG conversion failed:").strip()
    return text[:300]


@functools.cache
def _bounded() -> None:
    """Limit this process's memory, but not its address space: V8 reserves much more of that."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
