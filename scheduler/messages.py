"""The runtime's input to an engine: messages, sampling settings, and the spec of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from caesura.intercept.pause_hints import PauseHint
from caesura.scheduler.admission.programs import NO_ORIGIN, Origin
from caesura.scheduler.errors import UsageError

Message = Mapping[str, Any]
"""A chat message in OpenAI's shape: role, content, tool_calls, tool_call_id."""

ToolSpec = Mapping[str, Any]
"""A tool in OpenAI's shape: {"type": "function", "function": {name, description, parameters}}."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """What the text of a turn without calls must match.

    `value` depends on `kind`: a JSON schema as an object, a regular expression, a grammar in EBNF,
    or a list of texts for `choice`. For `json_object` it is None.
    """

    kind: Literal["json_schema", "json_object", "regex", "choice", "grammar"]
    value: Any = None


@dataclass(frozen=True, slots=True)
class CallRule:
    """Which calls a turn may hold.

    `required`: the turn is at least one call. `single`: the turn holds one call at most. `names`
    are the tools that may be called; None allows all that are shown to the model. The arguments of
    the tools in `strict` follow their schemas, as those of required calls always do.
    """

    required: bool = False
    single: bool = False
    names: tuple[str, ...] | None = None
    strict: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings; None leaves a setting to the model's generation configuration.

    `max_tokens` limits one turn (None: only the context window does), and `min_tokens` tokens come
    before its end. `stop` are texts that end the turn and are not part of it, `stop_token_ids` are
    tokens that do. `logit_bias` is added to the logits of tokens, by their ids. `bad_words` are
    texts that the model does not write. `logprobs` is the number of most likely tokens to report
    beside each token; None reports none. `text` and `calls` constrain what a turn may hold.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    min_p: float | None = None
    min_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    text: TextFormat | None = None
    calls: CallRule | None = None

    def __post_init__(self) -> None:
        """Check the types. Raises `UsageError`."""
        for name in _REAL + _WHOLE:
            value = getattr(self, name)
            kind = int if name in _WHOLE else int | float
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                what = "a whole number" if kind is int else "a number"
                raise UsageError(f"{name} must be {what} or None, got {value!r}")
        for name in ("stop", "bad_words"):
            if isinstance(value := getattr(self, name), str):
                raise UsageError(f"{name} must be a tuple of texts: write {name}=({value!r},)")


_REAL = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    "min_p",
)
_WHOLE = ("top_k", "max_tokens", "seed", "min_tokens", "logprobs")


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The settings of a new session.

    `tools` are shown to the model. A `pausing` session pauses inside the engine at a call and
    waits for the results. Any other session ends with its calls, as clients that run their own
    tools expect. `tool_choice` is `auto` or `none` (the tools are shown but calls are not parsed).
    `pauses` are hints about how long the tools' calls last, by tool name. `owner` is the identity
    of the client: a session never continues from the tokens of another owner's answer.

    `template` are variables for the model's chat template, such as `enable_thinking`. With
    `prefill`, the last message of the first turn is the begin of the model's answer. `cache_salt`
    keeps the session's KV cache apart from that of sessions with another salt. `priority` counts
    where vLLM schedules by priority; lower values come first. `origin` tells the tenant, the
    session's name and its parent's, for fair shares and programs. `adapter` is the name of a LoRA
    adapter, with which the model answers.
    """

    tools: Sequence[ToolSpec] = ()
    sampling: Sampling = field(default_factory=Sampling)
    pausing: bool = True
    tool_choice: Literal["auto", "none"] = "auto"
    pauses: Mapping[str, PauseHint] = field(default_factory=dict)
    owner: str = ""
    template: Mapping[str, Any] = field(default_factory=dict)
    prefill: bool = False
    cache_salt: str | None = None
    priority: int = 0
    origin: Origin = NO_ORIGIN
    adapter: str | None = None


def callable_tools(spec: SessionSpec, sampling: Sampling) -> list[ToolSpec]:
    """Return the tools of a session that a turn with these settings may call."""
    names = sampling.calls.names if sampling.calls is not None else None
    return [tool for tool in spec.tools if names is None or tool["function"]["name"] in names]
