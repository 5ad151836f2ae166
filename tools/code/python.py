"""The tool `python`: runs code in the session's interpreter, in its sandbox."""

from typing import Any

from caesura.tools.code.sandbox import Sandboxes, SandboxSettings, files_line, pictures
from caesura.tools.result import Output
from caesura.tools.services import Services
from caesura.tools.tool import Tool

__all__ = ["Settings", "make"]

LOST = "[the interpreter ended: variables and imports are lost]"


class Settings(SandboxSettings):
    """Settings of `[tools.python]`."""


class Python:
    """Runs code, and tells the model what it wrote, its last value and its exception."""

    def __init__(self, sandboxes: Sandboxes, settings: Settings, services: Services) -> None:
        self._sandboxes = sandboxes
        self._seconds = settings.seconds
        self._services = services

    async def __call__(self, code: str) -> Output:
        """Run code; raises BoxLost, Permanent and Unavailable."""
        box = await self._sandboxes.box()
        told = await box.python(code, self._seconds)
        made = await pictures(box, self._services, told["changed"])
        kept = await self._sandboxes.settled(box)
        parts = [told["stdout"].rstrip("\n")]
        if told["stderr"].strip():
            parts.append(f"[stderr]\n{told['stderr'].strip()}")
        parts += [told["value"] or "", told["error"] or "", *_notes(told, self._seconds)]
        parts += [files_line(told, made), kept]
        return Output("\n".join(filter(None, parts)) or "done, without output", tuple(made))


def _notes(told: dict[str, Any], seconds: float) -> list[str]:
    """Return what the model has to know beside the output."""
    notes = []
    if told["was_lost"]:
        notes.append("[the interpreter had ended before this call: a new one ran it]")
    match told["reason"]:
        case "timeout":
            notes.append(f"[stopped after {seconds:g} s]")
        case "memory":
            notes.append("[stopped: the processes took more memory than they may]")
    if told["lost"]:
        notes.append(LOST)
    if told["background"]:
        notes.append(f"[{told['background']} processes still ran, and were ended]")
    return notes


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError where no sandbox is safe here."""
    python = Python(Sandboxes.of(services, settings, "python"), settings, services)
    code: dict[str, Any] = {"type": "string", "description": "Python code"}
    return Tool(
        name="python",
        description=(
            "Run Python code; returns its output and the value of its last expression. Variables"
            " are kept between calls. No network. Files and pictures are written to the current"
            " folder."
        ),
        parameters={
            "type": "object",
            "properties": {"code": code},
            "required": ["code"],
            "additionalProperties": False,
        },
        call=python.__call__,
        function=python,
        timeout_seconds=None,
        expected_seconds=0.5,
    )
