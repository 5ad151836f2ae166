"""Hints about tools' pauses, for the scheduler to use before it has observed any."""

from collections.abc import Iterable

from caesura.intercept.pause_hints import PauseHint
from caesura.tools.people import person_deadline
from caesura.tools.tool import Tool

PERSON_SECONDS = 60.0
"""The expected time of a person's answer if the tool does not state it."""


def pauses_of(tools: Iterable[Tool]) -> dict[str, PauseHint]:
    """Return hints by name, for tools that wait for a person or state their expected time."""
    return {tool.name: hint for tool in tools if (hint := _hint(tool)) is not None}


def _hint(tool: Tool) -> PauseHint | None:
    seconds = tool.expected_seconds
    if tool.waits_for_person or tool.approval:
        deadline = person_deadline(tool)
        seconds = min(seconds or PERSON_SECONDS, deadline or float("inf"))
        return PauseHint(seconds, deadline, person=True)
    return None if seconds is None else PauseHint(seconds)
