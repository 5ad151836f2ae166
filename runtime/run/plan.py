"""The plan of a run: the tools shown, the side that runs each, and the limits.

Tools say how long their pauses last before any was observed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from caesura.intercept.pause_hints import PauseHint
from caesura.runtime.run.limits import Limits
from caesura.scheduler.messages import Message, Sampling, SessionSpec
from caesura.tools.people import person_deadline
from caesura.tools.registry import Registry
from caesura.tools.tool import Tool

PERSON_SECONDS = 60.0
"""The expected time of a person's answer if the tool does not state it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One request, ready to run.

    `registry` holds only the tools that the client asked the server to run, so the model can
    call no other tool of the server. The client runs `client_tools`.
    """

    messages: tuple[Message, ...]
    conversation: str
    """The digest of the messages."""
    user: str | None
    """The client's user, as the request names it."""
    spec: SessionSpec
    sampling: Sampling
    registry: Registry
    client_tools: frozenset[str]
    limits: Limits
    forced_name: str | None = None
    """The tool that the request forces the model to call."""
    choices: int = 1
    """How many answers the request gets, each from a run of its own."""

    def of_choice(self, number: int) -> "Plan":
        """Return the plan of one choice, which has a seed of its own if the request has one."""
        if self.sampling.seed is None:
            return self
        return replace(self, sampling=replace(self.sampling, seed=self.sampling.seed + number))


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
