"""What the runtime gives an engine: messages, media, sampling settings, and specs of sessions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import Any, Literal

from caesura.intercept.pause_hints import PauseHint
from caesura.scheduler.errors import UsageError
from caesura.scheduler.programs import NO_ORIGIN, Origin

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
class InputGrammar:
    """What the text may be that is the only argument of a tool.

    `definition` is a grammar of Lark, or a regular expression that the whole text matches.
    """

    syntax: Literal["lark", "regex"]
    definition: str


@dataclass(frozen=True, slots=True)
class CallRule:
    """Which calls a turn may hold.

    `required`: the turn is at least one call. `single`: the turn holds one call at most. `names`
    are the tools that may be called; None allows all that are shown to the model. The arguments of
    the tools in `strict` follow their schemas, as those of required calls always do. Those of the
    tools in `inputs` are one text each, which follows the grammar.
    """

    required: bool = False
    single: bool = False
    names: tuple[str, ...] | None = None
    strict: frozenset[str] = frozenset()
    inputs: Mapping[str, InputGrammar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings; None leaves a setting to the model's generation configuration.

    `max_tokens` limits one turn (None: only the context window does), and `min_tokens` tokens come
    before its end. `stop` are texts that end the turn and are not part of it, `stop_token_ids` are
    tokens that do. `logit_bias` is added to the logits of tokens, by their ids. `bad_words` are
    texts that the model does not write. `logprobs` is the number of most likely tokens to report
    beside each token; None reports none. `text` and `calls` constrain what a turn may hold.

    Raises `UsageError` for a value of another type or out of its range.
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
        """Check types and ranges. Raises `UsageError`."""
        for name in _REAL + _WHOLE:
            value = getattr(self, name)
            kind = int if name in _WHOLE else int | float
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                what = "a whole number" if kind is int else "a number"
                raise UsageError(f"{name} must be {what} or None, got {value!r}")
            least, most, told = _RANGES[name]
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} must be {told}, got {value!r}")
        for name in ("stop", "bad_words"):
            if isinstance(value := getattr(self, name), str):
                raise UsageError(f"{name} must be a tuple of texts: write {name}=({value!r},)")


_REAL = (
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    "min_p",
)
_WHOLE = ("top_k", "max_tokens", "seed", "min_tokens", "logprobs")
_ABOVE_ZERO, _FINITE = nextafter(0.0, 1.0), nextafter(inf, 0.0)
_RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0, 2, "from 0, which is greedy, to 2"),
    "top_p": (_ABOVE_ZERO, 1, "above 0 and at most 1"),
    "top_k": (-1, inf, "from 1, or 0 or -1 for all tokens"),
    "min_p": (0, 1, "from 0 to 1"),
    "presence_penalty": (-2, 2, "from -2 to 2"),
    "frequency_penalty": (-2, 2, "from -2 to 2"),
    "repetition_penalty": (_ABOVE_ZERO, _FINITE, "above 0, such as 1.1; 1 is no penalty"),
    "max_tokens": (1, inf, "from 1, or None for no bound"),
    "min_tokens": (0, inf, "from 0"),
    "seed": (-(2**63), 2**63 - 1, "a whole number of 64 bits"),
    "logprobs": (0, inf, "from 0, or None for none"),
}
"""The least and the greatest value of each setting, and how they are told."""


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The settings of a new session.

    `tools` are shown to the model. It may call the `deferred` ones too, of which messages tell it:
    they are not in the list of the prompt's begin. A `pausing` session pauses inside the engine at
    a call and waits for the results. Any other session ends with its calls, as clients that run
    their own tools expect. `tool_choice` is `auto` or `none` (the tools are shown but calls are not
    parsed). `pauses` are hints about how long the tools' calls last, by tool name. `owner` is the
    identity of the client: a session never continues from the tokens of another owner's answer.

    `template` are variables for the model's chat template, such as `enable_thinking`. With
    `prefill`, the last message of the first turn is the begin of the model's answer. `cache_salt`
    keeps the session's KV cache apart from that of sessions with another salt. `priority` counts
    where vLLM schedules by priority; lower values come first. `origin` tells the tenant, the
    session's name and its parent's, for fair shares and programs. `adapter` is the name of a LoRA
    adapter, with which the model answers. With `exact_thinking`, thinking that the messages lack
    was cleared, and no tokens that hold it are continued.
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
    exact_thinking: bool = False
    deferred: Sequence[ToolSpec] = ()

    @property
    def known_tools(self) -> Sequence[ToolSpec]:
        """All tools that the model may learn of."""
        return [*self.tools, *self.deferred]


def callable_tools(spec: SessionSpec, sampling: Sampling) -> list[ToolSpec]:
    """Return the tools of a session that a turn with these settings may call."""
    names = sampling.calls.names if sampling.calls is not None else None
    known = spec.known_tools
    return [tool for tool in known if names is None or tool["function"]["name"] in names]


MEDIA_KINDS: Mapping[str, str] = {
    "image_url": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "video_url": "video",
}
"""vLLM's name of the kind of media, by the type of a content part."""

Part = Mapping[str, Any]
"""A part of a message's content: {"type": "text", "text": ...}, or a type of `MEDIA_KINDS`."""


@dataclass(frozen=True, slots=True)
class MediaRules:
    """What media an engine takes: the most of each kind in a prompt, and the domains they are from.

    A kind that `limits` lacks is not taken. Without `domains`, every domain is allowed.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    domains: tuple[str, ...] = ()


def parts_of(content: object) -> Sequence[Part]:
    """Return the parts of a content that is a list; a text has none."""
    if not isinstance(content, Sequence) or isinstance(content, str):
        return ()
    return [part for part in content if isinstance(part, Mapping)]


def media_in(messages: Iterable[Message]) -> Iterator[Part]:
    """Yield the parts of messages that are no text, in order."""
    for message in messages:
        yield from (
            part for part in parts_of(message.get("content")) if part["type"] in MEDIA_KINDS
        )


def has_media(messages: Iterable[Message]) -> bool:
    """Return whether a message holds anything but text."""
    return any(True for _ in media_in(messages))


def behind_results(messages: Iterable[Message]) -> list[Message]:
    """Return messages whose tools' results are text: a message of the user shows their media.

    Some chat templates write no picture in a result.
    """
    made: list[Message] = []
    shown: list[Part] = []
    for message in [*messages, {"role": ""}]:
        if message.get("role") != "tool" and shown:
            made.append({"role": "user", "content": shown})
            shown = []
        if message.get("role") == "tool":
            parts = parts_of(message.get("content"))
            shown = [*shown, *(part for part in parts if part["type"] in MEDIA_KINDS)]
            message = {**message, "content": text_of(message.get("content"))}
        made.append(message)
    return made[:-1]


LATE = "late"
"""The field of a tool's message that stands behind later messages than its call's results."""


def with_lead(lead: str, content: str | Sequence[Part]) -> str | Sequence[Part]:
    """Return a content behind a line of text."""
    if isinstance(content, str):
        return f"{lead}\n{content}"
    return [{"type": "text", "text": lead}, *content]


def late_as_user(messages: Iterable[Message]) -> list[Message]:
    """Return messages in which the user tells the late results, where no tool can."""
    return [
        {"role": "user", "content": each.get("content")} if each.get(LATE) else each
        for each in messages
    ]


def text_of(content: object) -> str:
    """Return the text of a message's content; line breaks join its text parts."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text", "")) for part in parts_of(content) if "text" in part)
