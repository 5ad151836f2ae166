"""Events of a turn: text, calls, and how the turn ended.

An engine session yields them in order; the last event of every turn is `TurnEnded`.
`CallStarted` announces a call and `ArgumentsDelta` streams its arguments. Exactly one
`CallFinished` or `CallMalformed` closes it. A malformed call is data for the model, never an
exception for the user.
"""

from dataclasses import dataclass
from typing import Literal

TurnKind = Literal["fresh", "begun", "holding"]
"""How a turn begins; `WatchPlan` says what each of them means."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token, its bytes and the logarithm of its probability.

    `top` are the most likely tokens in its place, the likeliest first.
    """

    token: str
    logprob: float
    data: bytes
    top: "tuple[TokenLogprob, ...]" = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that the model wrote for the user; it never contains calls.

    `logprobs` are the tokens that end within the text, if the caller asked for them.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text that the model thought before or between its answer and its calls.

    The markers around it, and the white space next to them, are not part of it.
    """

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model named a tool; its arguments follow.

    `call_id` is unique within the session. `inline`: the call stands in the middle of a sentence
    (`[calculator(12*7) -> `) and not in a turn of calls.
    """

    call_id: str
    name: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """The next part of the JSON text of a started call's arguments."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call with complete arguments, which may now be dispatched.

    `arguments` is the text of a JSON object; the parser has checked that it is valid.
    """

    call_id: str
    name: str
    arguments: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class CallMalformed:
    """Text that opened a call but cannot be parsed; `reason` is one line for the model."""

    call_id: str
    name: str | None
    text: str
    reason: str
    inline: bool = False


@dataclass(frozen=True, slots=True)
class ResumeReport:
    """The scheduler's account of how a paused request was resumed.

    `handling` is what happened to its KV cache: `preserve`, `discard` or `swap`. `pause_seconds`
    is the time from the pause to the tool's result. `queue_seconds` is the time from the result
    to the step that resumed the request. `context_tokens` is the length of its context;
    `cached_tokens` of them needed no recomputation, and `loaded_tokens` of those came from the
    host.
    """

    handling: str
    pause_seconds: float
    queue_seconds: float
    context_tokens: int
    cached_tokens: int
    loaded_tokens: int = 0


@dataclass(frozen=True, slots=True)
class FollowUpReport:
    """How the history of a follow-up became tokens; a follow-up comes after an earlier answer.

    `spliced`: the first `spliced_tokens` are the tokens that were computed for the earlier answer,
    and only what is new was rendered behind them. `rendered`: the chat template wrote all of them.
    `why` is `unchanged` for a spliced one. For a rendered one it is `unknown` (the answer is not in
    memory), `changed` (the answer is, but not with what `field` names first), `template`
    (the chat template cannot write what is new alone), `room` (the spliced history would leave too
    little of the context window), `reasoning` (a parser of the server would misread it), `media`
    (the messages hold more than text), `parameter` (the parameter that `field` names may shape the
    prompt otherwise) or `off`.
    """

    outcome: Literal["spliced", "rendered"]
    why: str
    spliced_tokens: int = 0
    field: str = ""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The end of a turn.

    `reason` is `call` (the request is paused and waits for results), `stop` (the answer is
    complete), `length` (a token limit cut it) or `cut` (its caller cut it, and the request waits
    for what the caller has to say). `prompt_tokens` were appended for this turn and
    `completion_tokens` were decoded in it, `reasoning_tokens` of them within thinking.
    `cached_tokens` of the context came from the KV cache when the turn began. `resume` is set when
    the turn resumed a paused request, and `follow_up` when it began with a history that holds an
    earlier answer. `stop_text` is the stop text of the caller that ended the turn.
    `spelled_tokens` is the number of special tokens that the turn's new messages spelled, and that
    were rendered as text.
    """

    reason: Literal["call", "stop", "length", "cut"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    resume: ResumeReport | None = None
    follow_up: FollowUpReport | None = None
    stop_text: str | None = None
    reasoning_tokens: int = 0
    spelled_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ModelChanged:
    """The model failed for a `reason`, and another one writes the turn, from its beginning.

    What was written of the turn is void; it had no complete call.
    """

    model: str
    reason: str


CallEvent = CallStarted | ArgumentsDelta | CallFinished | CallMalformed
Event = TextDelta | ReasoningDelta | CallEvent | ModelChanged | TurnEnded
