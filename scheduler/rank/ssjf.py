"""Speculative shortest job first: fewest predicted output tokens first (Qiu et al., SSJF).

The paper's jobs are requests without tools; here a job is a segment, the stretch to the next call.
"""

from dataclasses import dataclass
from math import isfinite

from caesura.scheduler.rank.view import Queued, QueueView, Score


@dataclass(frozen=True, slots=True)
class Ssjf:
    """Orders by what is predicted to be left of the segment, then by arrival (section 3.2).

    `ageing` is in tokens per second of waiting, by which a request moves forward; 0 is the paper's
    own evaluation, which suggests ageing against starvation (section 6). Raises `ValueError` if
    it is negative or not finite.
    """

    ageing: float = 0.0

    name = "ssjf"
    refresh_steps = 0
    starvation_steps = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.ageing) and self.ageing >= 0):
            raise ValueError(f"ageing is a number of tokens per second, not {self.ageing!r}")

    def score(self, queued: Queued, view: QueueView) -> Score:
        """Return the predicted tokens, aged, then the arrival.

        All that queue age alike, so that tokens - ageing x (now - queued_at) puts them in the
        same order at any time as tokens + ageing x queued_at, which does not change.
        """
        return (queued.forecast.decode_tokens + self.ageing * queued.queued_at, queued.arrival)
