"""What a session logs of its turns, as plain data, so that another session can go on from it.

A log holds tokens, never text: what is replayed is what the model read and wrote. Who stores a log
keeps the entries in order. It may lose some at the end, which the engine then decodes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from caesura.intercept.calls.events import FollowUpReport, ResumeReport, TurnKind


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How the engine ended a turn."""

    finish: Literal["stop", "length"]
    """The reason that the engine gave."""
    verdict: str | None = None
    """The value of the watch's `Verdict` on the last token, or None."""
    paused: bool = False
    """Whether the request waited for the results of the turn's calls."""
    cached_tokens: int = 0
    """How many tokens of the prompt had their KV already."""
    resume: ResumeReport | None = None


@dataclass(slots=True)
class LoggedTurn:
    """One turn: what was sent to the engine, and what it sampled."""

    appended: Sequence[int]
    """The tokens that the turn appended; the whole context if it `replaces`."""
    kind: TurnKind = "fresh"
    """Whether the turn began, or goes on behind the result of an in-line call."""
    replaces: bool = False
    spelled_tokens: int = 0
    """How many tokens of the messages spell special tokens of the model."""
    follow_up: FollowUpReport | None = None
    has_media: bool = False
    """Whether the session holds pictures or sounds from here on, which no log holds.

    Nothing follows such a turn in the log, and a session cannot go on from it.
    """
    sampled: list[int] = field(default_factory=list)
    outcome: TurnOutcome | None = None
    """None if the log ends within the turn."""


class WeightsSpan(NamedTuple):
    """Tokens behind each other that one version of the weights has sampled."""

    version: str | None
    """The engine's label of the weights, `default` until a trainer names another; None: not known.
    """
    tokens: int
    """How many tokens they are."""


class SampledFacts(NamedTuple):
    """What an engine knows of tokens that it sampled, beside their ids."""

    logprobs: Sequence[float] | None = None
    """The log probability of each token; None: they are not known."""
    weights: Sequence[WeightsSpan] = ()
    """The versions of the weights, in the order of the tokens; empty: they are not known."""


class SessionLog(Protocol):
    """The log of one session. Its methods return at once, and never raise."""

    @property
    def key(self) -> str:
        """A text that names the session, or a part of it, for ever.

        The ids of its calls are made from it. Where it changes, before a turn, their count begins
        anew: so a log that lacks earlier parts makes the same ids.
        """
        ...

    @property
    def turns(self) -> Sequence[LoggedTurn]:
        """The turns that a new session replays before it goes on; empty for a new log."""
        ...

    @property
    def takes_facts(self) -> bool:
        """Whether it wants what is known of sampled tokens, which costs the engine something."""
        ...

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn, which nothing was sampled for yet."""
        ...

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Add tokens to the last turn, with what is known of them."""
        ...

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        ...


class MemoryLog:
    """A log in memory, for tests and for a session that moves within one process."""

    takes_facts = False

    def __init__(self, key: str, turns: Sequence[LoggedTurn] = ()) -> None:
        """Create the log of the session `key`, with the `turns` to replay."""
        self.key = key
        self.turns: list[LoggedTurn] = list(turns)

    def begin(self, turn: LoggedTurn) -> None:
        """Add a turn, which nothing was sampled for yet."""
        self.turns.append(turn)

    def sampled(self, tokens: Sequence[int], facts: SampledFacts | None = None) -> None:
        """Add tokens to the last turn."""
        self.turns[-1].sampled.extend(tokens)

    def end(self, outcome: TurnOutcome) -> None:
        """End the last turn."""
        self.turns[-1].outcome = outcome
