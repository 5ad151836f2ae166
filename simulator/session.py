"""Sessions that call tools, as plain numbers.

A session is a row of segments. In each it is given tokens (its prompt, then what a tool returned),
decodes some, and waits for a tool, except after the last.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Segment:
    """One stretch between two tool calls; `tool` is empty and `tool_seconds` 0 in the last one.

    `most_tokens` is how many tokens the client would let it decode (`max_tokens`); 0: as many as
    the model's context has room for.
    """

    given_tokens: int
    decode_tokens: int
    tool: str = ""
    tool_seconds: float = 0.0
    most_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """One session, the second at which it arrives, and the prefix that it shares with others.

    `shared_tokens` first tokens of its prompt are the same in all sessions of that `shared_name`.
    """

    key: str
    kind: str
    arrival: float
    segments: tuple[Segment, ...]
    shared_name: str = ""
    shared_tokens: int = 0

    @property
    def tool_seconds(self) -> float:
        """Seconds that it spends waiting for tools."""
        return sum(segment.tool_seconds for segment in self.segments)

    @property
    def decode_tokens(self) -> int:
        """Tokens that it decodes in all."""
        return sum(segment.decode_tokens for segment in self.segments)

    @property
    def context_tokens(self) -> int:
        """Tokens of its context at the very end."""
        return sum(segment.given_tokens + segment.decode_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions in the order of their arrival.

    With `clients` the arrivals do not count: so many clients each send the next session of the
    row when their last has ended (a closed loop). `about` says where it comes from, in a line.
    """

    name: str
    sessions: tuple[Session, ...]
    clients: int = 0
    about: str = field(default="", compare=False)
