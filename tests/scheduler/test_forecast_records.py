"""A record for each segment of a session says what every predictor expected of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from caesura.scheduler.predict.facts import CallWords, Facts
from caesura.scheduler.predict.forecast import About, Forecast, forecasts_by_name
from caesura.scheduler.predict.history import History
from caesura.scheduler.records import FeatureRecord, ForecastRecord, parse
from caesura.scheduler.vllm.engine.export.writer import forecast_record

from .steering import CALL, until_paused
from .world import World, make_scheduler


def forecasts_of(world: World) -> list[ForecastRecord]:
    records = map(parse, world.records)
    return [record for record in records if isinstance(record, ForecastRecord)]


def test_a_forecast_is_recorded_when_a_session_arrives_and_when_it_returns() -> None:
    world = World(make_scheduler(host_blocks=100))
    session = world.session("a", range(100), CALL, " 42", "done")
    until_paused(world, session)
    world.answer(session)
    world.plain("p", range(50), "yes")
    world.run()
    world.drain()
    found = [(each.session, each.calls, each.compared_with) for each in forecasts_of(world)]
    assert found == [("a", 0, "calc"), ("a", 1, "calc"), ("p", 0, "")]
    for record in forecasts_of(world):
        (made,) = record.predictions
        assert made.predictor == "history"
        assert made.decode_tokens is not None and made.decode_tokens > 0


def test_nothing_is_forecast_without_records() -> None:
    world = World(make_scheduler(host_blocks=100, records=False))
    asked: list[About] = []
    predictor = world.scheduler.parts.sessions.predictor = Asked(asked)
    world.plain("p", range(50), "yes")
    assert not asked and predictor.name == "history"


class Asked(History):
    """Appends each question to `asked`."""

    def __init__(self, asked: list[About]) -> None:
        super().__init__()
        self._asked = asked

    def forecast(self, about: About) -> Forecast:
        self._asked.append(about)
        return super().forecast(about)


class Mixture(History):
    """A predictor of two parts."""

    name = "mixture"

    def parts(self, about: About) -> Mapping[str, Forecast]:
        return {"table": self.forecast(about), "model": self.forecast(about)}


def test_a_mixture_is_recorded_with_its_parts(about: About) -> None:
    assert list(forecasts_by_name(Mixture(), about)) == ["table", "model", "mixture"]
    assert list(forecasts_by_name(History(), about)) == ["history"]


def test_features_and_quantiles_are_recorded() -> None:
    words = CallWords((3, 5), (3,))
    facts = Facts(context_tokens=90).after_call(12, "calc", words)
    facts = facts.after_result(7, True, 110, 2.5)
    made = History().forecast(About("r", "calc", 1, 0))
    made = replace(made, decode_quantiles=tuple(map(float, range(1, 21))), long_pause=0.25)
    record = forecast_record("r", "s", About("s", "calc", 1, 0, facts), {"model": made}, 1.0)
    assert record.features == FeatureRecord(
        110, 2.5, 12, 12.0, 7, 7.0, 1, True, "calc", [3, 5], [3], [1]
    )
    (row,) = record.predictions
    assert (row.decode_quantiles, row.long_pause) == ([3.0, 11.0, 19.0], 0.25)


@pytest.fixture
def about() -> About:
    return About("r-1", "calc", 2, 0)


@pytest.mark.parametrize(
    ("ends", "calls_left", "ends_now", "within"),
    [
        ((1.0,), 0.0, 1.0, 1.0),
        ((0.0, 0.0, 1.0), 2.0, 0.0, 1.0),
        ((0.0,) * 5 + (1.0,), 5.0, 0.0, 0.0),
        ((0.5, 0.5, 1.0), 0.75, 0.5, 1.0),
        ((0.5, 0.5, 0.5, 0.5, 1.0), 0.9375, 0.5, 0.9375),
    ],
)
def test_the_number_of_calls_is_summed_up(
    about: About, ends: tuple[float, ...], calls_left: float, ends_now: float, within: float
) -> None:
    made: dict[str, Any] = dict.fromkeys(
        ("decode_tokens", "segment_tokens", "result_tokens", "pause_seconds", "pause_discount"), 7.0
    )
    record = forecast_record("r-1", "s-1", about, {"table": Forecast(**made, ends=ends)}, 3.5)
    (told,) = record.predictions
    assert (record.request, record.session, record.calls, record.at) == ("r-1", "s-1", 2, 3.5)
    assert (told.calls_left, told.ends_now, told.ends_within_3) == (calls_left, ends_now, within)
    assert parse(record.entry()) == record
