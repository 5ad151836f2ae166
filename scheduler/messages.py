"""The runtime's input to an engine: messages, sampling settings, and the spec of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from caesura.intercept.pause_hints import PauseHint

Message = Mapping[str, Any]
"""A chat message in OpenAI's shape: role, content, tool_calls, tool_call_id."""

ToolSpec = Mapping[str, Any]
"""A tool in OpenAI's shape: {"type": "function", "function": {name, description, parameters}}."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings; None leaves a setting to the model's generation configuration.

    `max_tokens` limits one turn (None: only the context window does). `stop` are texts that end
    the turn and are not part of it.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """The settings of a new session.

    `tools` are shown to the model. A `pausing` session pauses inside the engine at a call and
    waits for the results. Any other session ends with its calls, as clients that run their own
    tools expect. `tool_choice` is `auto` or `none` (the tools are shown but calls are not parsed).
    `pauses` are hints about how long the tools' calls last, by tool name. `asker` is the identity
    of the client: a session never continues from the tokens of another asker's answer.
    """

    tools: Sequence[ToolSpec] = ()
    sampling: Sampling = field(default_factory=Sampling)
    pausing: bool = True
    tool_choice: Literal["auto", "none"] = "auto"
    pauses: Mapping[str, PauseHint] = field(default_factory=dict)
    asker: str = ""
