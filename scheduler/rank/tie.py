"""Shortest expected output first, where a long tail counts as more than its share of the mean.

Zheng et al., "Scheduling LLM Inference with Uncertainty-Aware Output Length Predictions" (arXiv
2604.00499), ranks by a tail-inflated expectation (TIE) of a log-t distribution. Lengths here come
as equally likely values. The mean of the longest `tail` of them is the inflation, in proportion to
its excess over the mean. So this is the paper's idea, and not its formula.
"""

from dataclasses import dataclass
from math import isfinite

from caesura.scheduler.predict.forecast import Forecast
from caesura.scheduler.rank.view import Queued, QueueView, Score


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
