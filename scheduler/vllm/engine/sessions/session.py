"""The state of one session."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypedDict

from caesura.scheduler.policy.ranking import Score
from caesura.scheduler.predict.facts import Facts

Clock = Callable[[], float]
"""Returns seconds of a clock that never goes backwards."""


class SegmentFields(TypedDict):
    """The common fields of records of a segment."""

    session: str
    arrival: float
    given_tokens: int
    decoded_tokens: int


@dataclass(slots=True, eq=False)
class SessionState:
    """The state of one session.

    `session_id` is the id of its first request, and `arrival` the time of that request, which came
    at `begun_at` of the engine's clock. `facts` hold at the begin of its segment. `kind` is
    the last tool called, or before any call the offered tools; `kinds` are all earlier kinds.
    The last segment was given `given_tokens` and decoded `decoded_tokens`; with them the context
    was `context_tokens` long. `queued_at` is the begin of the current wait. `passes` counts steps
    in which other requests ran while it waited. `overtaken` counts steps of the current wait in
    which a request was admitted whose wait began later. `score` was computed in step
    `scored_in` for the KV in `scored_for`. `misfit` is the need found in step `misfit_in`, when it
    did not fit: blocks, and tokens that need no computation. `spoilt`: a segment missed the
    objective; `latest_start` is the latest admission with which the present one meets it.
    `tenant` is a digest of the client's key, and `expected_seconds` the engine seconds that the
    present segment is expected to consume.
    """

    session_id: str
    arrival: float
    kind: str
    queued_at: float
    begun_at: float
    facts: Facts
    kinds: set[str] = field(default_factory=set)
    calls: int = 0
    context_tokens: int = 0
    given_tokens: int = 0
    decoded_tokens: int = 0
    passes: int = 0
    overtaken: int = 0
    starved: bool = False
    started: bool = False
    spoilt: bool = False
    latest_start: float = inf
    tenant: str = ""
    expected_seconds: float = 0.0
    score: Score | None = None
    scored_in: int = 0
    scored_for: Any = None
    misfit: tuple[int, int] | None = None
    misfit_in: int = 0

    def queue(self, now: float) -> None:
        """Reset the counts of a wait: the request was queued, or its KV changed while queued."""
        self.queued_at = now
        self.passes = self.overtaken = 0
        self.score = self.misfit = None

    def segment(self) -> SegmentFields:
        """Return its id and arrival, and its last segment's given and decoded tokens."""
        return SegmentFields(
            session=self.session_id,
            arrival=self.arrival,
            given_tokens=self.given_tokens,
            decoded_tokens=self.decoded_tokens,
        )
