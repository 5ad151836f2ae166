"""Speculative shortest job first: fewest predicted output tokens first (Qiu et al., SSJF).

The paper's jobs are requests without tools. Here a job is a segment, the part up to the next call.
"""

from dataclasses import dataclass
from math import isfinite

from caesura.scheduler.rank.view import Queued, QueueView, Score


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
