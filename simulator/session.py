"""Sessions that call tools, as plain numbers.

A session is a sequence of segments. In each segment it is given tokens (its prompt, or a tool's
result), decodes tokens, and waits for a tool, except after the last segment.
"""

from dataclasses import dataclass, field

from caesura.scheduler.predict.facts import NO_WORDS, CallWords


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a session between two calls; the last has an empty `tool` and 0 `tool_seconds`.

    `most_tokens` is the client's `max_tokens`; 0: as many tokens as the model's context holds.
    `words` are the hashed words of the call at its end; `failed`: the result of that call is an
    error. Both are unknown in most workloads, and then empty.
    """

    given_tokens: int
    decode_tokens: int
    tool: str = ""
    tool_seconds: float = 0.0
    most_tokens: int = 0
    words: CallWords = NO_WORDS
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its arrival in seconds, its segments, and the prefix that it shares.

    The first `shared_tokens` of its prompt are the same in all sessions with its `shared_name`.
    `tenant` is the client that sends it.

    A sub-agent names its `parent`, another session of the workload, by key. It is sent when the
    parent makes its call number `parent_call`, from 0 on, whatever its arrival. The parent goes on
    when the last sub-agent of that call has ended.
    """

    key: str
    kind: str
    arrival: float
    segments: tuple[Segment, ...]
    shared_name: str = ""
    shared_tokens: int = 0
    parent: str = ""
    parent_call: int = 0
    tenant: str = ""

    @property
    def tool_seconds(self) -> float:
        """Return the seconds that it waits for tools."""
        return sum(segment.tool_seconds for segment in self.segments)

    @property
    def decode_tokens(self) -> int:
        """Return the tokens that it decodes in all segments."""
        return sum(segment.decode_tokens for segment in self.segments)

    @property
    def context_tokens(self) -> int:
        """Return the tokens of its context at its end."""
        return sum(segment.given_tokens + segment.decode_tokens for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Workload:
    """Sessions in the order of their arrival.

    With `clients` above 0 the arrivals are ignored: each of that many clients sends the next
    session when its last one has ended (a closed loop). `about` is a line about the source, and
    `seed` is what the sessions were drawn with.
    """

    name: str
    sessions: tuple[Session, ...]
    clients: int = 0
    about: str = field(default="", compare=False)
    seed: int = field(default=0, compare=False)
