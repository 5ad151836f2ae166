"""How long another model's answers take, learned from earlier ones by its load.

The load is the number of requests that the model's engine runs or queues. The forecast is the mean
of earlier answers, in which those at a similar load count most. An expected time, for example from
a plan, counts as a few answers at any load.
"""

from collections import deque
from math import exp, log1p

SAMPLE_SIZE = 128
"""The number of last answers that count."""

PRIOR_WEIGHT = 2.0
"""The number of answers that the expected time counts as."""

WIDTH = 0.35
"""Standard deviation of the weights, in the logarithm of one plus the load."""

MIN_WEIGHT = 0.5
"""Without an expected time, answers of at least this weight must have come at a similar load."""


class AnswerTimes:
    """The seconds of one model's answers."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=SAMPLE_SIZE)

    def observe(self, load: int, seconds: float) -> None:
        """Learn that an answer took `seconds`, which was asked for at this load."""
        self._seen.append((log1p(max(0, load)), max(0.0, seconds)))

    def forecast(self, load: int | None, expected_seconds: float | None = None) -> float | None:
        """Return the expected seconds of an answer that is asked for now.

        Returns `expected_seconds` if the load is unknown, and None if nothing is known.
        """
        if load is None:
            return expected_seconds
        total = weights = 0.0
        if expected_seconds is not None:
            total, weights = PRIOR_WEIGHT * expected_seconds, PRIOR_WEIGHT
        here = log1p(max(0, load))
        for there, seconds in self._seen:
            weight = exp(-(((here - there) / WIDTH) ** 2) / 2)
            total, weights = total + weight * seconds, weights + weight
        if weights < MIN_WEIGHT or total <= 0:
            return None
        return total / weights
