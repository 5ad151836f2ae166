"""The render_svg tool: pictures from SVG, drawn by vl-convert's resvg."""

from pydantic import Field

from caesura.tools.picture.drawing import Drawer
from caesura.tools.result import Output
from caesura.tools.services import Services, ToolSettings, require
from caesura.tools.tool import Tool

TIMEOUT_SECONDS = 10.0
PARAMETERS = {
    "type": "object",
    "properties": {"svg": {"type": "string", "description": "The SVG document."}},
    "required": ["svg"],
    "additionalProperties": False,
}


class Settings(ToolSettings):
    """Settings of `[tools.render_svg]`."""

    workers: int = Field(1, ge=1, le=16, description="worker processes")
    max_side: int = Field(2_048, ge=16, le=8_192, description="the longest side, in pixels")


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`. Raises SetupError where vl-convert is not installed."""
    require("vl_convert", "pictures", "render_svg")
    drawer = Drawer(services, settings.workers)

    async def render_svg(svg: str) -> Output:
        return await drawer.draw("svg", text=svg, max_side=settings.max_side)

    return Tool.from_schema(
        "render_svg",
        "Draw an SVG document as a PNG picture.",
        PARAMETERS,
        render_svg,
        timeout_seconds=TIMEOUT_SECONDS,
        safe_to_repeat=True,
        concurrency=settings.workers,
        expected_seconds=0.1,
    )
