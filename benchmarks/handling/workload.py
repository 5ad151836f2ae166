"""Sessions that call tools, as plain numbers: the same seed always gives the same ones.

A session is a row of segments. In each it is given tokens (its prompt, then what a tool returned),
decodes some, and waits for a tool, except after the last.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.handling.model import WORDS
from caesura.simulator.session import Segment
from caesura.simulator.workload.draw import fit

__all__ = [
    "Draw",
    "Segment",
    "Session",
    "Speed",
    "counted",
    "fit",
    "pauses",
    "peak_context",
    "poisson",
]


@dataclass(frozen=True)
class Session:
    """One session and the second at which it arrives."""

    key: str
    kind: str
    arrival_seconds: float
    segments: tuple[Segment, ...]

    @property
    def tool_seconds(self) -> float:
        return sum(segment.tool_seconds for segment in self.segments)

    @property
    def context_tokens(self) -> int:
        """Tokens of its context at the very end."""
        return sum(segment.given_tokens + segment.decode_tokens for segment in self.segments)

    def words(self) -> list[list[int]]:
        """Return the tokens that it is given, segment by segment: random words, its own."""
        rng = random.Random(self.key)
        return [rng.choices(WORDS, k=segment.given_tokens) for segment in self.segments]


Draw = Callable[[random.Random], tuple[str, list[Segment]]]
"""Draws the kind and the segments of one session."""


def poisson(draw: Draw, rate: float, seconds: float, seed: int) -> list[Session]:
    """Draw the sessions that arrive in so many seconds, at a mean rate per second.

    Sessions are drawn apart from their arrivals, so that another rate with the same seed has the
    same sessions closer together or further apart.
    """
    arrivals, rng = random.Random(f"arrivals {seed}"), random.Random(f"sessions {seed}")
    sessions: list[Session] = []
    now = arrivals.expovariate(rate)
    while now < seconds:
        kind, segments = draw(rng)
        sessions.append(Session(f"{seed}-{len(sessions)}", kind, now, tuple(segments)))
        now += arrivals.expovariate(rate)
    return sessions


def counted(sessions: list[Session], after: float, until: float) -> frozenset[str]:
    """Return the keys of the sessions to be measured.

    Those that arrive before `after` meet an empty engine. Those whose tools alone last beyond
    `until` would make a run as long as the longest session; they are served while the run lasts,
    and only add to the load. The choice depends on no system's speed.
    """
    return frozenset(
        session.key
        for session in sessions
        if session.arrival_seconds >= after
        and session.arrival_seconds + session.tool_seconds <= until
    )


@dataclass(frozen=True)
class Speed:
    """What the model costs, for estimates: seconds per prefilled and per decoded token."""

    prefill_seconds: float
    decode_seconds: float
    step_seconds: float
    """From one token of a request to its next, beside others."""

    def work_seconds(self, session: Session) -> float:
        """Seconds of the engine that a session takes if nothing is computed twice."""
        given = sum(segment.given_tokens for segment in session.segments)
        decoded = sum(segment.decode_tokens for segment in session.segments)
        return given * self.prefill_seconds + decoded * self.decode_seconds


def peak_context(sessions: list[Session], speed: Speed, state_tokens: int = 0) -> int:
    """Tokens of context that all sessions hold together at most, if no session ever waits.

    A session's recurrent state counts as `state_tokens`.
    """
    changes = sorted(
        change for session in sessions for change in _growth(session, speed, state_tokens)
    )
    held = peak = 0
    for _, tokens in changes:
        held += tokens
        peak = max(peak, held)
    return peak


def _growth(session: Session, speed: Speed, state_tokens: int) -> Iterator[tuple[float, int]]:
    now = session.arrival_seconds
    yield now, state_tokens
    for segment in session.segments:
        yield now, segment.given_tokens + segment.decode_tokens
        now += segment.given_tokens * speed.prefill_seconds
        now += segment.decode_tokens * speed.step_seconds + segment.tool_seconds
    yield now, -session.context_tokens - state_tokens


def pauses(sessions: list[Session]) -> Iterator[tuple[str, float, int]]:
    """Yield kind, seconds and context of every pause."""
    for session in sessions:
        context = 0
        for segment, _ in pairwise(session.segments):
            context += segment.given_tokens + segment.decode_tokens
            yield session.kind, segment.tool_seconds, context
