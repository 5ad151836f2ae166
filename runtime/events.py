"""The events of a run: the engine's (`caesura.intercept.calls.events`) and those of tools.

A run is a sequence of model turns and tool calls, and its last event is `RunEnded`.
"""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    ModelChanged,
    ReasoningDelta,
    ResumeReport,
    TextDelta,
    TurnEnded,
)
from caesura.scheduler.messages import Message
from caesura.tools.dispatcher import ToolCall, ToolResult
from caesura.tools.run_view import Usage

__all__ = [
    "ArgumentsDelta",
    "CallFinished",
    "CallGoesOn",
    "CallMalformed",
    "CallStarted",
    "HandedOff",
    "HookActed",
    "ModelChanged",
    "OutputRefused",
    "OutputWritten",
    "ReasoningDelta",
    "ResumeReport",
    "RunEnded",
    "RunEvent",
    "Steered",
    "TextDelta",
    "ToolReported",
    "ToolReturned",
    "TurnEnded",
    "Usage",
]


@dataclass(frozen=True, slots=True)
class CallGoesOn:
    """The model goes on while a call runs in the background.

    `text` is what the model is told in place of the result. The `ToolReturned` of a call that is
    made here comes in a later turn, when the model is told the result.
    """

    call: ToolCall
    text: str
    is_clients: bool = False
    """Whether the caller runs it, and tells its result in a later conversation."""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool returned `result`, which goes to the model. An error is a result too."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class Steered:
    """The model is told a message of the user within a run, behind what it has said so far."""

    message: Message


@dataclass(frozen=True, slots=True)
class ToolReported:
    """A running tool reported its progress."""

    call: ToolCall
    text: str


RunReason = Literal["stop", "length", "calls", "interrupted"]


def run_reason(reason: Literal["call", "stop", "length", "cut"]) -> RunReason:
    """Return why a run ends with a turn that ended for a reason."""
    return "calls" if reason == "call" else "interrupted" if reason == "cut" else reason


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The end of a run.

    `reason` is `stop` if the answer is complete, `length` if a token limit cut it, `interrupted` if
    its caller did, and `calls` if the turn holds calls that the caller has to run. The field
    `calls` lists these. `text` is the answer's text in the run's last turn, including the text
    around in-line calls. An agent tells too what its sub-agents used: `total_usage` is `usage` and
    theirs, and `cost` is its price by `Limits.prices`. `agent` is the name of the agent that
    answered.
    """

    reason: RunReason
    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = field(default=())
    total_usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    agent: str | None = None


T = TypeVar("T", covariant=True, default=str)
"""The type of an agent's output; an agent without one answers with a text."""


@dataclass(frozen=True, slots=True)
class OutputWritten(Generic[T]):
    """The output of an agent with a type, as far as the model has written it.

    `value` is the JSON so far, in which the last text may be cut, and `output` what is valid of
    it. `output` is None while what a type requires is missing, and for a function up to the end.
    The last such event of a run is `complete`, and has the validated output.
    """

    value: Any
    output: T | None
    complete: bool = False


@dataclass(frozen=True, slots=True)
class OutputRefused:
    """An answer's `text` did not fit the type, the `reason` was told to the model, which retries.

    The drafts of this answer are void.
    """

    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class HookActed:
    """A hook refused, changed or ended something.

    `hook` names its class and method. `text` is what the model is told, what came in place of
    something, or the run's answer. `call` is the call that it is about, if there is one.
    """

    hook: str
    action: Literal["refused", "changed", "ended"]
    text: str
    call: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class HandedOff:
    """The conversation was passed on by a call; `agent` goes on with it."""

    agent: str | None
    call: ToolCall


RunEvent = (
    Event
    | CallGoesOn
    | Steered
    | HandedOff
    | ToolReported
    | ToolReturned
    | OutputWritten[Any]
    | OutputRefused
    | HookActed
    | RunEnded
)
