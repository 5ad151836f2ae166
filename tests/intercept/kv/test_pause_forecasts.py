"""Forecasts of single calls: how they are corrected, and when they count."""

import pytest

from caesura.intercept.kv.pause_durations import SAMPLE_SIZE, Durations, ForecastTrust

LEARNED = Durations(10.0, 2.0, (5.0, 15.0, 5.0, 15.0) * 10)
MEAN = LEARNED.mean


def after(
    trust: ForecastTrust, pauses: list[tuple[float, float]], learned: Durations = LEARNED
) -> ForecastTrust:
    """Return the trust after pauses of (forecast, true) seconds."""
    for forecast, seconds in pauses:
        trust = trust.observe(trust.forecast(forecast, 0.0, learned), seconds)
    return trust


def test_a_first_forecast_is_the_mean_of_the_pause() -> None:
    trust = ForecastTrust()
    forecast = trust.forecast(3.0, 0.0, LEARNED)
    assert forecast.seconds == forecast.corrected_seconds == 3.0
    assert forecast.learned_seconds == pytest.approx(MEAN)
    assert trust.durations(forecast, LEARNED).mean == pytest.approx(3.0)


def test_a_forecast_after_some_seconds_is_that_of_the_whole_pause() -> None:
    forecast = ForecastTrust().forecast(3.0, 2.0, LEARNED)
    assert forecast.seconds == 5.0
    assert forecast.learned_seconds == pytest.approx(2.0 + LEARNED.remaining(2.0))


def test_right_forecasts_become_certain() -> None:
    trust = after(ForecastTrust(), [(5.0, 5.0), (15.0, 15.0)] * 40)
    durations = trust.durations(trust.forecast(15.0, 0.0, LEARNED), LEARNED)
    assert durations.mean == pytest.approx(15.0, rel=0.05)
    assert durations.survival(14.0) > 0.95
    assert durations.survival(16.0) < 0.05


def test_a_source_that_is_always_half_of_the_truth_is_corrected() -> None:
    trust = after(ForecastTrust(), [(2.5, 5.0), (7.5, 15.0)] * 40)
    assert trust.better
    durations = trust.durations(trust.forecast(7.5, 0.0, LEARNED), LEARNED)
    assert durations.mean == pytest.approx(15.0, rel=0.05)


def test_forecasts_that_predict_worse_than_the_mean_do_not_count() -> None:
    trust = after(ForecastTrust(), [(15.0, 5.0), (5.0, 15.0)] * 10)
    assert not trust.better
    assert trust.durations(trust.forecast(15.0, 0.0, LEARNED), LEARNED) is LEARNED


def test_forecasts_that_are_as_good_as_the_mean_do_not_count() -> None:
    trust = after(ForecastTrust(), [(MEAN, 5.0), (MEAN, 15.0)] * 10)
    assert trust.forecast_error == pytest.approx(trust.learned_error, rel=0.1)
    assert not trust.better


def test_forecasts_count_again_when_they_have_become_better() -> None:
    trust = after(ForecastTrust(), [(15.0, 5.0), (5.0, 15.0)] * 10)
    trust = after(trust, [(5.0, 5.0), (15.0, 15.0)] * 2 * SAMPLE_SIZE)
    assert trust.better
    assert trust.compared == SAMPLE_SIZE


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="must be a positive number of seconds, got"):
        ForecastTrust().forecast(seconds, 5.0, LEARNED)


def test_extreme_seconds_stay_finite() -> None:
    trust = after(ForecastTrust(), [(1e-300, 1e300), (1e300, 0.0)])
    durations = trust.durations(trust.forecast(1e300, 0.0, LEARNED), LEARNED)
    assert 0 < durations.remaining(0.0) < float("inf")
