"""The order of the waiting requests: what a ranking sees and answers, and the simple rankings.

`caesura` and `lamps` have modules of their own.
"""

from dataclasses import dataclass
from math import isfinite
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
    far. `starved`: it was passed over in as many steps as its ranking allows. `fixed_tokens` is the
    memory of its windows and states, in tokens of full attention.
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
    fixed_tokens: float = 0.0

    @property
    def held_tokens(self) -> float:
        """Return the memory of the context, in tokens of full attention."""
        return self.context_tokens + self.fixed_tokens

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


def segment_seconds(queued: Queued, view: QueueView) -> float:
    """Return the engine seconds that a segment is expected to consume.

    They are the time to compute what is missing, and the share of the KV cache that the request
    holds while it decodes, times the time that decoding takes.
    """
    decode = queued.forecast.decode_tokens
    held_share = (queued.held_tokens + decode / 2) / max(1, view.capacity_tokens)
    computing = queued.missing_tokens * view.cost.prefill_seconds_per_token
    return computing + decode * view.step_seconds * held_share


@dataclass(frozen=True, slots=True)
class Fcfs:
    """Orders by the session's arrival."""

    name = "fcfs"
    refresh_steps = 0
    starvation_steps = 0

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the session's arrival in seconds."""
        return (queued.arrival,)


@dataclass(frozen=True, slots=True)
class Ssjf:
    """Orders by the predicted tokens left in the segment, then by arrival (section 3.2).

    `ageing` is the number of tokens by which a second of waiting moves a request forward. The
    paper suggests ageing against starvation (section 6) and evaluates 0. Raises `ValueError` if it
    is negative or not finite.
    """

    ageing: float = 0.0

    name = "ssjf"
    refresh_steps = 0
    starvation_steps = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.ageing) and self.ageing >= 0):
            raise ValueError(
                f"ageing must be tokens per second, finite and >= 0, got {self.ageing!r}"
            )

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the predicted tokens, aged, then the arrival.

        All waiting requests age alike. So tokens - ageing x (now - queued_at) gives the same order
        as tokens + ageing x queued_at, which does not change with time.
        """
        return (queued.forecast.decode_tokens + self.ageing * queued.queued_at, queued.arrival)


@dataclass(frozen=True, slots=True)
class TailInflated:
    """Orders by the tail-inflated tokens left in the segment, then by arrival.

    `inflation` times the excess of the tail's mean over the mean is added to the mean; 0 is the
    order of `ssjf`. The tail is the longest share `tail` of the predicted lengths. Raises
    `ValueError` for an `inflation` that is negative or not finite, and a `tail` not in (0, 1].
    """

    inflation: float = 1.0
    tail: float = 0.1

    name = "tie"
    refresh_steps = 0
    starvation_steps = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.inflation) and self.inflation >= 0):
            raise ValueError(f"inflation must be finite and >= 0, got {self.inflation!r}")
        if not 0 < self.tail <= 1:
            raise ValueError(f"tail must be a share above 0 and at most 1, got {self.tail!r}")

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the tail-inflated tokens, then the arrival."""
        return (inflated_tokens(queued.forecast, self.inflation, self.tail), queued.arrival)


def inflated_tokens(forecast: Forecast, inflation: float, tail: float) -> float:
    """Return the mean of the tokens left, plus `inflation` times the excess of the tail's mean.

    Without a distribution it is the mean.
    """
    mean, lengths = forecast.decode_tokens, forecast.decode_quantiles
    if not lengths:
        return mean
    longest = lengths[-max(1, round(tail * len(lengths))) :]
    return mean + inflation * max(0.0, sum(longest) / len(longest) - mean)
