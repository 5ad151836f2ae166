"""The record of what predictors expect of a session when it is queued."""

from collections.abc import Mapping, Sequence

from caesura.scheduler.accuracy.outcomes import FEW_CALLS
from caesura.scheduler.predict.facts import Facts
from caesura.scheduler.predict.forecast import About, Forecast
from caesura.scheduler.records import FeatureRecord, ForecastRecord, PredictionRecord

DIGITS = 4
"""The number of decimals that are kept, which makes records short."""

SHARES = (0.1, 0.5, 0.9)
"""The quantiles that are recorded of a distribution."""


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
        features=_features(about.facts),
        predictions=tuple(_prediction(name, made) for name, made in forecasts.items()),
    )


def _features(facts: Facts) -> FeatureRecord:
    return FeatureRecord(
        context_tokens=facts.context_tokens,
        seconds=round(facts.seconds, DIGITS),
        segment_tokens=facts.segment_tokens,
        segment_mean=round(facts.segment_mean, DIGITS),
        result_tokens=facts.result_tokens,
        result_mean=round(facts.result_mean, DIGITS),
        errors=facts.errors,
        last_error=facts.last_error,
        tool=facts.tool,
        words=list(facts.words),
        heads=[head for head, _ in facts.heads],
        head_calls=[calls for _, calls in facts.heads],
    )


def _prediction(name: str, made: Forecast) -> PredictionRecord:
    return PredictionRecord(
        predictor=name,
        decode_tokens=round(made.decode_tokens, DIGITS),
        decode_quantiles=_quantiles(made.decode_quantiles),
        calls_left=round(made.calls_left(), DIGITS),
        ends_now=round(made.ends_within(0), DIGITS),
        ends_within_3=round(made.ends_within(FEW_CALLS), DIGITS),
        pause_seconds=round(made.pause_seconds, DIGITS),
        long_pause=round(made.long_pause, DIGITS),
    )


def _quantiles(likely: Sequence[float]) -> list[float]:
    """Return the quantiles of equally likely values, which are ascending; [] of none."""
    return [round(likely[int(share * len(likely))], DIGITS) for share in SHARES] if likely else []
