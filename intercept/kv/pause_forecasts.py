"""What a forecast of one call says, beside what was learned from the tool's other calls.

A forecast gives the seconds of a single call, such as a question to another model whose queue is
known. How far it can be trusted is learned for each tool. The ratios of true to forecast seconds
are a distribution, so a pause is expected to last the forecast times that distribution. A source
that is always wrong by the same factor is thus corrected.

A forecast counts only while it predicts the tool's pauses clearly better than the learned
durations do, by the mean absolute error in seconds of both over the same pauses. Forecasts that are
as good as the mean would only disturb the order in which requests give up their KV cache.
"""

from dataclasses import dataclass, field
from math import inf

from caesura.intercept.kv.pause_durations import SAMPLE_SIZE, Durations
from caesura.intercept.pause_hints import MAX_SECONDS, MIN_SECONDS

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
