"""Forecasts of a predictor and of the predictors that it mixes, by their names."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from caesura.scheduler.predict.forecast import About, Forecast, Predictor


@runtime_checkable
class Mixed(Protocol):
    """A predictor that is made of others, whose forecasts can be compared with its own."""

    def parts(self, about: About) -> Mapping[str, Forecast]:
        """Return the forecasts of the predictors that it mixes, by their names."""
        ...


def forecasts_by_name(predictor: Predictor, about: About) -> dict[str, Forecast]:
    """Return the forecast of a predictor, and those of its parts if it is mixed."""
    forecasts = {predictor.name: predictor.forecast(about)}
    if isinstance(predictor, Mixed):
        forecasts = {**predictor.parts(about), **forecasts}
    return forecasts
