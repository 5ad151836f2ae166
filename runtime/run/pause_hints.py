"""What tools say about their pauses: hints before any was observed, forecasts of single calls."""

from collections.abc import Collection, Iterable

from caesura.intercept.pause_hints import PauseHint
from caesura.runtime.run.limits import Clock
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


class PauseForecasts:
    """The forecasts that the calls of one turn have given; the turn waits for the last of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def take(self, call_id: str, seconds: float) -> None:
        """Take a forecast that a call lasts `seconds` more; it replaces an earlier one."""
        self._ends[call_id] = self._clock() + seconds

    def left_seconds(self, running: Collection[str]) -> float | None:
        """Return the seconds until the last of the `running` calls is expected to end.

        Returns None if a call has no forecast, or if all forecasts have passed.
        """
        if not running or any(call_id not in self._ends for call_id in running):
            return None
        left = max(self._ends[call_id] for call_id in running) - self._clock()
        return left if left > 0 else None
