"""What a run yields: the engine's events (`caesura.intercept.calls.events`), and the tools' side.

A run is model turns and tool calls until the answer is complete. Its last event is `RunEnded`.
"""

from dataclasses import dataclass, field
from typing import Literal

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.tools.dispatch.dispatcher import ToolCall, ToolResult

__all__ = [
    "ArgumentsDelta",
    "CallFinished",
    "CallMalformed",
    "CallStarted",
    "ResumeReport",
    "RunEnded",
    "RunEvent",
    "TextDelta",
    "ToolReported",
    "ToolReturned",
    "TurnEnded",
    "Usage",
    "UsageCount",
]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token and call totals over a run or a session.

    `prompt_tokens` were appended by the caller and the tools, `completion_tokens` decoded;
    `cached_tokens` of the context needed no computation when a turn began, summed over turns.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0
    calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        """Sum field by field."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
            self.turns + other.turns,
            self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool's result, as it goes to the model; an error is a result too."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class ToolReported:
    """What a tool says of its progress while it runs."""

    call: ToolCall
    text: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a run.

    `reason`: `stop` (the answer is complete), `length` (a token limit cut it), `calls` (the turn
    holds calls of tools that the caller runs: `calls`). `text` is all text of the run's last turn
    that the model wrote for the reader, text before and after in-line calls included.
    """

    reason: Literal["stop", "length", "calls"]
    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = field(default=())


RunEvent = Event | ToolReported | ToolReturned | RunEnded


@dataclass(slots=True)
class UsageCount:
    """Adds up the usage of the events that it is fed; `total` is the sum so far."""

    total: Usage = field(default_factory=Usage)

    def take(self, event: RunEvent) -> None:
        """Count a call, malformed or not, and the tokens of a turn at its end."""
        match event:
            case CallFinished() | CallMalformed():
                self.total += Usage(calls=1)
            case TurnEnded():
                tokens = (event.prompt_tokens, event.completion_tokens, event.cached_tokens)
                self.total += Usage(*tokens, turns=1)
            case _:
                pass
