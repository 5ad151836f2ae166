"""What the runtime hands to an engine: messages, sampling settings, and how a session opens."""

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
    """How to decode; None leaves a setting to the model's own generation configuration.

    `max_tokens` bounds one turn (None: what the context window leaves), `stop` are texts that end
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
    """What a session with an engine is opened with.

    `tools` are shown to the model. `pausing` sessions pause inside the engine at a call and wait
    for its results; others end with their calls, as a client that runs its own tools expects.
    `tool_choice` is `auto` or `none` (the tools are shown, calls are not parsed). `pauses` are
    hints about how long the tools' calls last, by name.
    """

    tools: Sequence[ToolSpec] = ()
    sampling: Sampling = field(default_factory=Sampling)
    pausing: bool = True
    tool_choice: Literal["auto", "none"] = "auto"
    pauses: Mapping[str, PauseHint] = field(default_factory=dict)
