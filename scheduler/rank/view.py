"""The input and output of a ranking: a waiting request, the engine, and the score."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.predict.forecast import Forecast

Score = tuple[float, ...]
"""A smaller score goes first; equal scores go by arrival."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A waiting request: a new one, one whose tool has returned, or a preempted one.

    `arrival` is when its session first arrived, in seconds of the engine's clock; neither a pause
    nor a preemption resets it. `queued_at` is when this wait began. `context_tokens` is C, its
    tokens before the next one is decoded. `resident_tokens` of them are on the device,
    `hosted_tokens` more would be loaded from the host, and the rest is computed.
    `decoded_tokens` were decoded in this segment before a preemption. `calls` counts its pauses so
    far. `starved`: it was passed over in as many steps as its ranking allows.
    """

    key: str
    arrival: float
    queued_at: float
    context_tokens: int
    resident_tokens: int
    hosted_tokens: int
    decoded_tokens: int
    calls: int
    forecast: Forecast
    starved: bool = False

    @property
    def missing_tokens(self) -> int:
        """Return the tokens to compute before the next one can be decoded."""
        return max(0, self.context_tokens - self.resident_tokens - self.hosted_tokens)


@dataclass(frozen=True, slots=True)
class QueueView:
    """The engine as rankings see it.

    `capacity_tokens` is M, the size of the KV cache. `step_seconds` is the recent duration of a
    step. `batch_tokens` is the total context of the running requests, `running` their number.
    """

    now: float
    capacity_tokens: int
    step_seconds: float
    running: int
    batch_tokens: int
    swap_pays: bool
    cost: CostModel


class Ranking(Protocol):
    """Orders the queue. It is pure: the same views, the same score.

    The queue does the back-filling, the convoy rule and the starvation counters. A score is kept
    while its request waits: until its KV changes, or for `refresh_steps` steps if that is not 0.
    A request that was passed over in `starvation_steps` steps (0: never) stays `starved`.
    """

    @property
    def name(self) -> str:
        """Return the name under which the ranking is selected."""
        ...

    @property
    def refresh_steps(self) -> int:
        """Return after how many steps a score is recomputed; 0: only when the request changes."""
        ...

    @property
    def starvation_steps(self) -> int:
        """Return after how many skipped steps a request counts as starved; 0: never."""
        ...

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the request's score; a smaller score goes first."""
        ...
