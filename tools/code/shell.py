"""The tool `shell`: runs commands in the session's sandbox."""

import re
from dataclasses import dataclass
from typing import Any

from caesura.tools.code.sandbox import Sandboxes, SandboxSettings, files_line, pictures
from caesura.tools.result import Output
from caesura.tools.services import Services
from caesura.tools.tool import Tool

__all__ = ["Settings", "make"]

_ERRORS = "[stderr]\n"
_CODE = re.compile(r"exit code (-?\d+)")
_BASH = 'test -x /bin/bash && exec /bin/bash -c "$1" || exec /bin/sh -c "$1"'


class Settings(SandboxSettings):
    """Settings of `[tools.shell]`."""


class Shell:
    """Runs a command, and tells the model its exit code and what it wrote."""

    def __init__(self, sandboxes: Sandboxes, settings: Settings, services: Services) -> None:
        self._sandboxes = sandboxes
        self._seconds = settings.seconds
        self._services = services

    async def __call__(self, command: str) -> Output:
        """Run a command; raises BoxLost, Permanent and Unavailable."""
        box = await self._sandboxes.box()
        told = await box.run(["/bin/sh", "-c", _BASH, "sh", command], self._seconds)
        made = await pictures(box, self._services, told["changed"])
        kept = await self._sandboxes.settled(box)
        parts = [_head(told, self._seconds), told["stdout"].rstrip("\n")]
        if told["stderr"].strip():
            parts.append(_ERRORS + told["stderr"].strip())
        parts += [files_line(told, made), kept]
        return Output("\n".join(filter(None, parts)), tuple(made))


def _head(told: dict[str, Any], seconds: float) -> str:
    """Return the first line of a result."""
    background = told["background"]
    ended = f" ({background} processes still ran, and were ended)" if background else ""
    match told["reason"]:
        case "timeout":
            return f"stopped after {seconds:g} s"
        case "memory":
            return "stopped: the processes took more memory than they may"
        case "stopped":
            return "stopped"
    code = told["code"]
    return f"exit code {code}{ended}" if code >= 0 else f"ended by signal {-code}{ended}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command wrote, and how it ended."""

    exit_code: int | None
    """None: it was stopped since it took too long."""
    stdout: str
    stderr: str


def outcome_in(text: str) -> Outcome:
    """Return what a result of the tool tells."""
    head, _, rest = text.partition("\n")
    out, _, err = rest.partition(_ERRORS)
    if head.startswith("stopped after"):
        return Outcome(None, out, err)
    code = _CODE.match(head)
    if code is None:
        return Outcome(1, out if head.startswith(("stopped", "ended")) else "", err or head)
    return Outcome(int(code[1]), out, err)


def result_of(outcome: Outcome) -> str:
    """Return the result that tells this; `outcome_in` reads it."""
    code = outcome.exit_code
    head = "stopped after its time" if code is None else f"exit code {code}"
    errors = f"{_ERRORS}{outcome.stderr}" if outcome.stderr else ""
    return f"{head}\n{outcome.stdout}{errors}" if outcome.stdout or errors else head


def make(settings: Settings, services: Services) -> Tool:
    """Return the tool, for `Toolset`; raises SetupError where no sandbox is safe here."""
    shell = Shell(Sandboxes.of(services, settings, "shell"), settings, services)
    command: dict[str, Any] = {"type": "string", "description": "one or more lines for a shell"}
    return Tool(
        name="shell",
        description=(
            "Run a shell command; returns its exit code and its output. It begins in the working"
            " folder, which is kept between calls. No network. Processes end with the call."
        ),
        parameters={
            "type": "object",
            "properties": {"command": command},
            "required": ["command"],
            "additionalProperties": False,
        },
        call=shell.__call__,
        function=shell,
        timeout_seconds=None,
        expected_seconds=0.5,
    )
