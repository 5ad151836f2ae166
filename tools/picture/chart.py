"""The render_chart tool: charts from Vega-Lite, drawn by vl-convert."""

import json
from contextlib import suppress
from typing import Any

from pydantic import Field

from caesura.tools.picture.drawing import Drawer
from caesura.tools.result import Output
from caesura.tools.schema.validator import schema_validator
from caesura.tools.services import Services, ToolSettings, require
from caesura.tools.tool import Tool

TIMEOUT_SECONDS = 20.0
PARAMETERS = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "description": 'Vega-Lite with inline data: {"data": {"values": [...]}, "mark": "bar", '
            '"encoding": {...}}. Without encoding: first column x, second y.',
        }
    },
    "required": ["spec"],
    "additionalProperties": False,
}


class Settings(ToolSettings):
    """Settings of `[tools.render_chart]`."""

    workers: int = Field(1, ge=1, le=16, description="worker processes")
    max_rows: int = Field(5_000, ge=1, le=100_000, description="rows of data in one chart")
    max_side: int = Field(2_048, ge=16, le=8_192, description="the longest side, in pixels")


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`. Raises SetupError where vl-convert is not installed."""
    require("vl_convert", "pictures", "render_chart")
    drawer = Drawer(services, settings.workers)

    async def render_chart(spec: dict[str, Any]) -> Output:
        return await drawer.draw(
            "chart", spec=spec, max_rows=settings.max_rows, max_side=settings.max_side
        )

    return Tool.from_schema(
        "render_chart",
        "Draw a chart as a PNG picture.",
        PARAMETERS,
        render_chart,
        validate=_validate,
        timeout_seconds=TIMEOUT_SECONDS,
        safe_to_repeat=True,
        concurrency=settings.workers,
        expected_seconds=0.3,
    )


_by_schema = schema_validator(PARAMETERS)


def _validate(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the checked arguments; a specification in a JSON string is parsed first."""
    spec = arguments.get("spec")
    if isinstance(spec, str):
        with suppress(ValueError, RecursionError):  # the check below refuses a string
            arguments = {**arguments, "spec": json.loads(spec)}
    return _by_schema(arguments)
