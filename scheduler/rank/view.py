"""What a ranking sees of a request that queues and of the engine, and what it answers."""

from dataclasses import dataclass
from typing import Protocol

from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.predict.forecast import Forecast

Score = tuple[float, ...]
"""Smaller goes first; equal scores go by arrival."""


@dataclass(frozen=True, slots=True)
class Queued:
    """A request that queues: a new one, one whose tool has returned, or a preempted one.

    `arrival` is when its session first arrived, in seconds of the engine's clock; neither a pause
    nor a preemption resets it. `queued_at` is when this wait began. `context_tokens` is C, the
    tokens that it has before the next one is decoded: `resident_tokens` of them are on the device
    already, `hosted_tokens` more would be loaded from the host, the rest is computed.
    `decoded_tokens` were decoded in this segment before a preemption. `calls` counts its pauses so
    far. `starved` tells that it was passed over in as many steps as its ranking allows.
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
        """Tokens that are computed before the next one can be decoded."""
        return max(0, self.context_tokens - self.resident_tokens - self.hosted_tokens)


@dataclass(frozen=True, slots=True)
class QueueView:
    """The engine, as far as rankings ask.

    `capacity_tokens` is M, what the KV cache holds. `step_seconds` is the time of a step as it
    has been lately. `batch_tokens` is the context of the running requests together, `running`
    their number.
    """

    now: float
    capacity_tokens: int
    step_seconds: float
    running: int
    batch_tokens: int
    swap_pays: bool
    cost: CostModel


class Ranking(Protocol):
    """Orders the queue. Pure: the same view, the same score.

    Back-filling, the convoy rule and starvation counters are the queue's. A score is kept while
    its request queues: until its KV changes, or for `refresh_steps` steps if that is not 0. A
    request that was passed over in `starvation_steps` steps (0: never) is `starved` to its end.
    """

    @property
    def name(self) -> str:
        """The name under which it is selected."""
        ...

    @property
    def refresh_steps(self) -> int:
        """After so many steps a score is made anew; 0: only when the request changes."""
        ...

    @property
    def starvation_steps(self) -> int:
        """So many steps a request is passed over before it counts as starved; 0: never."""
        ...

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the request's place: smaller goes first."""
        ...
