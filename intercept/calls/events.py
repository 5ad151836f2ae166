"""What a decoding turn is seen to do: text, calls, and how the turn ended.

An engine session yields these in order; the last event of every turn is `TurnEnded`.
A call is announced by `CallStarted`, its arguments stream as `ArgumentsDelta`, and it closes
with exactly one `CallFinished` or `CallMalformed`. A malformed call is data for the model, never
an exception for the user.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that the model wrote for the reader; calls are never part of it."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model named a tool; its arguments follow.

    `call_id` is unique within the session. `inline` tells a call in the middle of a sentence
    (`[calculator(12*7) -> `) from one that stands in a turn of calls.
    """

    call_id: str
    name: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments' JSON text of a call that has started."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call whose arguments are complete: from here on it may be dispatched.

    `arguments` is the JSON text of an object; it has been parsed once, so it is valid JSON.
    """

    call_id: str
    name: str
    arguments: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class CallMalformed:
    """Text that opened a call but is none; `reason` is one line for the model."""

    call_id: str
    name: str | None
    text: str
    reason: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class ResumeReport:
    """How a paused request came back, as the scheduler saw it.

    `handling` is what happened to its KV cache (`preserve`, `discard` or `swap`), `pause_seconds`
    the time from the pause to the tool's result, `queue_seconds` from the result to the step that
    resumed it, `context_tokens` what the request held, of which `cached_tokens` needed no
    recomputation: `loaded_tokens` of them came from the host.
    """

    handling: str
    pause_seconds: float
    queue_seconds: float
    context_tokens: int
    cached_tokens: int
    loaded_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The end of a turn.

    `reason`: `call` (paused, waiting for results), `stop` (the answer is complete), `length` (a
    token limit cut it). `prompt_tokens` were appended for this turn, `completion_tokens` decoded
    in it, `cached_tokens` of the context came from the KV cache when it began. `resume` is set
    when the turn resumed a paused request.
    """

    reason: Literal["call", "stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    resume: ResumeReport | None = None


CallEvent = CallStarted | ArgumentsDelta | CallFinished | CallMalformed
Event = TextDelta | CallEvent | TurnEnded
