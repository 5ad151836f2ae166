"""What sessions saw, as it is written to the results."""

from dataclasses import dataclass, field


@dataclass
class SegmentRecord:
    """What one segment saw; times are seconds since the run began.

    `given_tokens` are new to the engine, `context_tokens` all that the segment began with, of which
    `cached_tokens` needed no computation; `loaded_tokens` of those came from the host. `handling`
    is set where a paused request came back.
    """

    index: int
    tool: str
    sent: float
    given_tokens: int
    context_tokens: int
    decode_tokens: int
    first: float = 0.0
    ended: float = 0.0
    said: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    handling: str = ""


@dataclass
class SessionRecord:
    """What one session saw; `tool_seconds` is how long its tools really took."""

    key: str
    kind: str
    arrived: float
    tool_seconds: float = 0.0
    ended: float = 0.0
    segments: list[SegmentRecord] = field(default_factory=list)
