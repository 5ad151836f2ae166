"""`Answer`: what a run returns."""

from dataclasses import dataclass
from typing import Generic, Literal

from caesura.runtime.events import T, Usage
from caesura.scheduler.messages import Message
from caesura.tools.dispatcher import ToolCall, ToolResult


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer of a run.

    `output` is of the agent's output type; without one it is the text. `reason` is `stop`, or
    `length` if a token limit cut the text. `calls` holds the run's calls with their results, in
    the model's order, including malformed calls. `messages` is the whole history after the run, in
    OpenAI's form. `usage` is the run's own; `total_usage` has that of its sub-agents too, and
    `cost` is what that costs by `Limits.prices`.
    """

    text: str
    reason: Literal["stop", "length"]
    usage: Usage
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    messages: tuple[Message, ...]
    output: T
    total_usage: Usage
    cost: float

    def __str__(self) -> str:
        """Return the answer's text."""
        return self.text

    def __repr__(self) -> str:
        tokens = self.usage.completion_tokens
        return f"<Answer {self.text!r}: {self.reason}, {len(self.calls)} call(s), {tokens} tokens>"
