"""The record of what predictors expect of a session when it is queued."""

from collections.abc import Mapping
from math import prod

from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.records import ForecastRecord, PredictionRecord

DIGITS = 4
"""The number of decimals that are kept, which makes records short."""


def forecast_record(
    request: str, session: str, about: About, forecasts: Mapping[str, Forecast], at: float
) -> ForecastRecord:
    """Return the record of forecasts, by their predictors' names, at the wall time `at`."""
    return ForecastRecord(
        request=request,
        at=at,
        session=session,
        calls=about.calls,
        compared_with=about.kind,
        predictions=tuple(_prediction(name, made) for name, made in forecasts.items()),
    )


def _prediction(name: str, made: Forecast) -> PredictionRecord:
    return PredictionRecord(
        predictor=name,
        decode_tokens=round(made.decode_tokens, DIGITS),
        calls_left=round(_calls_left(made.ends), DIGITS),
        ends_now=round(made.ends[0], DIGITS) if made.ends else 1.0,
        ends_within_3=round(_ends_within(made.ends, 3), DIGITS),
        pause_seconds=round(made.pause_seconds, DIGITS),
    )


def _calls_left(ends: tuple[float, ...]) -> float:
    alive, calls = 1.0, 0.0
    for end in ends:
        alive *= 1 - end
        calls += alive
    return calls


def _ends_within(ends: tuple[float, ...], calls: int) -> float:
    """Return the probability of at most `calls` calls until the session ends."""
    return 1.0 - prod(1 - end for end in ends[: calls + 1]) if len(ends) > calls else 1.0
