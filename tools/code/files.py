"""The tool `files`: lists, reads, writes, edits and searches files of the session's sandbox."""

from typing import Any

from pydantic import Field

from caesura.tools.code.box import OUTPUT_BYTES
from caesura.tools.code.sandbox import Sandboxes, SandboxSettings, edited
from caesura.tools.services import Services
from caesura.tools.tool import Tool

__all__ = ["Settings", "make"]

_MOST = 4 * OUTPUT_BYTES


class Settings(SandboxSettings):
    """Settings of `[tools.files]`."""

    seconds: float = Field(20.0, gt=0, le=3600, description="limit for one call")


class Files:
    """Does what the model asks of the files."""

    def __init__(self, sandboxes: Sandboxes, seconds: float) -> None:
        self._sandboxes = sandboxes
        self._seconds = seconds

    async def __call__(self, **request: Any) -> str:
        """Return what became of a request; raises BoxLost, Permanent and Unavailable."""
        box = await self._sandboxes.box()
        text, _ = await edited(box, request, self._seconds, output=_MOST)
        return "\n".join(filter(None, [text, await self._sandboxes.settled(box)]))


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "read", "write", "edit", "search"]},
        "path": {"type": "string", "description": "a file or a folder, such as src/a.py"},
        "text": {"type": "string", "description": "write: the whole new text"},
        "old": {"type": "string", "description": "edit: a text that stands in the file once"},
        "new": {"type": "string", "description": "edit: what stands there instead"},
        "all": {"type": "boolean", "description": "edit: replace old everywhere"},
        "pattern": {
            "type": "string",
            "description": "search: a regular expression; list: names such as *.py",
        },
        "first_line": {"type": "integer", "minimum": 1, "description": "read: from this line"},
        "last_line": {"type": "integer", "minimum": 1, "description": "read: up to this line"},
    },
    "required": ["action"],
    "additionalProperties": False,
}


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError where no sandbox is safe here."""
    files = Files(Sandboxes.of(services, settings, "files"), settings.seconds)
    return Tool(
        name="files",
        description="List, read, write, edit or search files of the working folder.",
        parameters=_PARAMETERS,
        call=files.__call__,
        function=files,
        timeout_seconds=None,
        expected_seconds=0.2,
    )
