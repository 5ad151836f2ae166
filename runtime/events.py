"""The events of a run: the engine's (`caesura.intercept.calls.events`) and those of tools.

A run is a sequence of model turns and tool calls, and its last event is `RunEnded`.
"""

from dataclasses import dataclass, field
from typing import Literal

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ReasoningDelta,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.tools.dispatcher import ToolCall, ToolResult

__all__ = [
    "ArgumentsDelta",
    "CallFinished",
    "CallMalformed",
    "CallStarted",
    "ReasoningDelta",
    "ResumeReport",
    "RunEnded",
    "RunEvent",
    "TextDelta",
    "ToolReported",
    "ToolReturned",
    "TurnEnded",
    "Usage",
]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token and call totals over a run or a session.

    `prompt_tokens` counts the tokens that the caller and the tools appended, `completion_tokens`
    the decoded ones, of which `reasoning_tokens` were thought. `cached_tokens` counts the context
    tokens that needed no computation when a turn began, summed over turns.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0
    calls: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum of two usages, field by field."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.turns + other.turns,
            self.calls + other.calls,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool returned `result`, which goes to the model. An error is a result too."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class ToolReported:
    """A running tool reported its progress."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a run.

    `reason` is `stop` if the answer is complete, `length` if a token limit cut it, and `calls` if
    the turn holds calls that the caller has to run. The field `calls` lists these. `text` is the
    answer's text in the run's last turn, including the text around in-line calls.
    """

    reason: Literal["stop", "length", "calls"]
    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = field(default=())


RunEvent = Event | ToolReported | ToolReturned | RunEnded
