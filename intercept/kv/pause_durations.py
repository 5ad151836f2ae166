"""How long a tool's pauses last: the distribution of recent ones, and forecasts of single calls.

A distribution is a sample of pauses, and a prior. The prior counts as a few observations of an
exponential pause. Its mean is that of the sample and the prior together. As the sample grows, the
prior becomes the tail that a bounded sample lacks.

An overdue tool is not about to return. So a pause that has lasted `elapsed` seconds is expected
to last at least `OVERDUE` times `elapsed` longer. Without this floor, an underestimated tool would
always seem about to return.

A forecast gives the seconds of a single call, such as a question to another model whose queue is
known. How far it can be trusted is learned for each tool. The ratios of true to forecast seconds
are a distribution, so a pause is expected to last the forecast times that distribution. A source
that is always wrong by the same factor is thus corrected.

A forecast counts only while it predicts the tool's pauses clearly better than the learned
durations do, by the mean absolute error in seconds of both over the same pauses. Forecasts that are
as good as the mean would only disturb the order in which requests give up their KV cache.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import exp, inf, isfinite
from typing import Any

from caesura.intercept.pause_hints import MAX_SECONDS, MIN_SECONDS

SAMPLE_SIZE = 128
OVERDUE = 0.3


MOST = 1e15
"""The most seconds, and the largest weight: sums and products of larger ones are not finite."""


@dataclass(frozen=True, slots=True)
class Durations:
    """The pauses of one tool in seconds; immutable, so that a record of it never changes.

    `prior_seconds` is the mean that is assumed before the first pause, and `prior_weight` the
    number of observations that it counts as. `recent` are the last pauses, oldest first. Raises
    `ValueError` for a prior or weight that is not positive or above `MOST`, for a pause that
    is negative or above it, and for more than `SAMPLE_SIZE` pauses.
    """

    prior_seconds: float
    prior_weight: float = 1.0
    recent: tuple[float, ...] = ()
    sample: tuple[float, ...] = field(init=False, repr=False, compare=False)
    mean: float = field(init=False, repr=False, compare=False)
    _sums: tuple[float, ...] = field(init=False, repr=False, compare=False)  # of sample[i:]
    tail_mean: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        prior, weight = self.prior_seconds, self.prior_weight
        if not (0 < prior <= MOST and 0 < weight <= MOST):
            raise ValueError(
                f"prior_seconds and prior_weight must be positive and at most {MOST:g},"
                f" got {prior!r} and {weight!r}"
            )
        if len(self.recent) > SAMPLE_SIZE:
            raise ValueError(
                f"a sample may have at most {SAMPLE_SIZE} pauses, got {len(self.recent)}"
            )
        wrong = [seconds for seconds in self.recent if not 0 <= seconds <= MOST]
        if wrong:
            raise ValueError(f"pause seconds must be >= 0 and at most {MOST:g}, got {wrong[0]!r}")
        sample = tuple(sorted(self.recent))
        total, whole = sum(sample), len(sample) + weight
        tail_mean = (total + weight * prior) / whole
        mean = (total + weight * tail_mean) / whole
        sums = tuple(accumulate(reversed(sample), initial=0.0))[::-1]
        put = object.__setattr__
        put(self, "sample", sample)
        put(self, "mean", mean)
        put(self, "_sums", sums)
        put(self, "tail_mean", tail_mean)

    def observe(self, seconds: float) -> "Durations":
        """Return the durations with one more pause; a full sample drops its oldest.

        A negative pause, as from a clock that was set back, counts as 0. Raises `ValueError` if
        `seconds` is not finite.
        """
        if not isfinite(seconds):
            raise ValueError(f"pause seconds must be finite, got {seconds!r}")
        kept = self.recent[-(SAMPLE_SIZE - 1) :]
        return Durations(self.prior_seconds, self.prior_weight, (*kept, max(0.0, seconds)))

    def scaled(self, factor: float) -> "Durations":
        """Return the durations with every second multiplied by a positive `factor`."""
        recent = tuple(factor * seconds for seconds in self.recent)
        return Durations(factor * self.prior_seconds, self.prior_weight, recent)

    @property
    def count(self) -> int:
        """Return the number of pauses in the sample."""
        return len(self.sample)

    def survival(self, seconds: float) -> float:
        """Return the probability that a pause lasts longer than `seconds`."""
        seconds = max(0.0, seconds)
        longer = len(self.sample) - bisect_right(self.sample, seconds)
        unseen = self.prior_weight * exp(-seconds / self.tail_mean)
        return (longer + unseen) / (len(self.sample) + self.prior_weight)

    def mean_residual(self, elapsed: float) -> float:
        """Return the expected remaining seconds of a pause that has lasted `elapsed`."""
        elapsed = max(0.0, elapsed)
        index = bisect_right(self.sample, elapsed)
        longer = len(self.sample) - index
        if not longer:
            return self.tail_mean
        unseen = self.prior_weight * exp(-elapsed / self.tail_mean)
        seen_seconds = max(0.0, self._sums[index] - longer * elapsed)
        return (seen_seconds + unseen * self.tail_mean) / (longer + unseen)

    def remaining(self, elapsed: float) -> float:
        """Return `mean_residual`, but at least `OVERDUE` times `elapsed`."""
        return max(self.mean_residual(elapsed), OVERDUE * elapsed)

    def to_wire(self) -> dict[str, Any]:
        """Return the durations as plain data, which `from_wire` reads."""
        return {
            "prior_seconds": self.prior_seconds,
            "prior_weight": self.prior_weight,
            "recent": list(self.recent),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> "Durations":
        """Return the durations that `to_wire` wrote; raises `ValueError` for any other data."""
        try:
            return cls(
                float(wire["prior_seconds"]),
                float(wire["prior_weight"]),
                tuple(float(seconds) for seconds in wire["recent"]),
            )
        except (TypeError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a record of durations: {error!r}, in {wire!r:.200}") from error


PRIOR_WEIGHT = 2.0
"""Before any comparison, a forecast is taken for right, as by this many observations."""

MAX_ERROR_SHARE = 0.9
"""The largest error of forecasts that count, as a share of the error of the learned durations."""

MAX_RATIO = 1000.0
"""The largest ratio of true to forecast seconds that is learned, or of forecast to true ones."""


@dataclass(frozen=True, slots=True)
class PauseForecast:
    """A forecast of one pause, and the mean that was learned when it came.

    Both are seconds of the whole pause. `seconds` is the forecast as given, `corrected_seconds`
    the mean after the learned correction, and `learned_seconds` the mean without the forecast.
    """

    seconds: float
    corrected_seconds: float
    learned_seconds: float


@dataclass(frozen=True, slots=True)
class ForecastTrust:
    """How well forecasts have predicted the pauses of one tool; immutable.

    `ratios` are those of true to forecast seconds. The errors are means of absolute errors in
    seconds, over `compared` pauses; old ones fade after `SAMPLE_SIZE` pauses.
    """

    ratios: Durations = field(default_factory=lambda: Durations(1.0, PRIOR_WEIGHT))
    forecast_error: float = 0.0
    learned_error: float = 0.0
    compared: int = 0

    @property
    def better(self) -> bool:
        """Return whether forecasts have predicted clearly better than the learned durations."""
        return self.forecast_error <= MAX_ERROR_SHARE * self.learned_error

    def forecast(self, left_seconds: float, elapsed: float, learned: Durations) -> PauseForecast:
        """Return the forecast that a pause lasts `left_seconds` after the `elapsed` ones.

        `learned` are the durations to expect without it. Raises `ValueError` for seconds that are
        not positive and finite.
        """
        if not 0 < left_seconds < inf:
            raise ValueError(
                f"a pause's forecast must be a positive number of seconds, got {left_seconds!r}"
            )
        elapsed = max(0.0, elapsed)
        seconds = min(max(elapsed + left_seconds, MIN_SECONDS), MAX_SECONDS)
        learned_seconds = elapsed + learned.remaining(elapsed)
        return PauseForecast(seconds, seconds * self.ratios.mean, learned_seconds)

    def durations(self, forecast: PauseForecast, learned: Durations) -> Durations:
        """Return the durations to expect of a pause with this forecast.

        They are the `learned` ones, the same object, while these have predicted better.
        """
        return self.ratios.scaled(forecast.seconds) if self.better else learned

    def observe(self, forecast: PauseForecast, seconds: float) -> "ForecastTrust":
        """Return the trust after a pause with this forecast has lasted `seconds`."""
        ratio = min(max(seconds / forecast.seconds, 1 / MAX_RATIO), MAX_RATIO)
        compared = min(self.compared + 1, SAMPLE_SIZE)

        def mean_error(mean: float, expected: float) -> float:
            return mean + (abs(expected - seconds) - mean) / compared

        return ForecastTrust(
            self.ratios.observe(ratio),
            mean_error(self.forecast_error, forecast.corrected_seconds),
            mean_error(self.learned_error, forecast.learned_seconds),
            compared,
        )
