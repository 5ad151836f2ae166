"""An oracle: the truth, errors that are drawn once, and what it is not told."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev

import pytest

from caesura.intercept.kv.pause_durations import OVERDUE
from caesura.scheduler.policy import names
from caesura.scheduler.predict.forecast import About, Forecast, Predictor
from caesura.scheduler.predict.history import HORIZON_SECONDS, History
from caesura.simulator.predict import (
    MAX_SESSIONS,
    MIN_SHARE,
    QUANTITIES,
    Oracle,
    certain,
    expect,
    make_predictor,
)
from caesura.simulator.session import Segment, Session

SESSION = Session(
    "one",
    "agent",
    0.0,
    (
        Segment(1000, 50, "search", 2.0),
        Segment(200, 30, "python", 9.0),
        Segment(80, 10, "search", 4.0),
        Segment(40, 110),
    ),
)


def truth(key: str) -> Session | None:
    return SESSION if key == "one" else None


def oracle(error: float = 0.0, seed: int = 0, knows: Sequence[str] = QUANTITIES) -> Oracle:
    return Oracle(truth, History(), error, seed, knows)


def about(calls: int = 0, decoded: int = 0, key: str = "one") -> About:
    return About(key, "agent", calls, decoded)


def learned(calls: int = 0, decoded: int = 0) -> Forecast:
    return History().forecast(about(calls, decoded))


def test_without_an_error_it_tells_the_truth() -> None:
    forecast = oracle().forecast(about(0, 20))
    assert forecast.decode_tokens == 30
    assert forecast.segment_tokens == (30 + 10 + 110) / 3
    assert forecast.result_tokens == (200 + 80 + 40) / 3
    assert forecast.pause_seconds == 2.0
    assert forecast.pause_discount == pytest.approx(1 - 2.718281828459045 ** (-2 / HORIZON_SECONDS))
    assert forecast.ends == (0.0, 0.0, 0.0, 1.0)


def test_as_the_session_goes_on() -> None:
    told = [oracle().forecast(about(calls)) for calls in range(4)]
    assert [forecast.decode_tokens for forecast in told] == [50, 30, 10, 110]
    assert [forecast.pause_seconds for forecast in told[:3]] == [2.0, 9.0, 4.0]
    assert [len(forecast.ends) for forecast in told] == [4, 3, 2, 1]
    assert [sum(forecast.ends) for forecast in told] == [1.0] * 4


def test_a_pause_is_that_of_the_segment_that_was_forecast_last() -> None:
    predictor = oracle()
    assert predictor.pause("one", "search").mean == pytest.approx(2.0)
    for calls, tool, seconds in ((0, "search", 2.0), (1, "python", 9.0), (2, "search", 4.0)):
        predictor.forecast(about(calls))
        for asked in (tool, None):
            for _ in range(2):
                assert predictor.pause("one", asked).mean == pytest.approx(seconds)
    predictor.forecast(about(0))
    assert predictor.pause("one", "python").mean == pytest.approx(9.0)


def test_a_pause_of_a_call_by_its_number() -> None:
    predictor = oracle()
    predictor.forecast(about(0))
    for calls, tool, seconds in ((3, "search", 4.0), (1, "search", 2.0), (2, None, 9.0)):
        assert predictor.pause("one", tool, calls).mean == pytest.approx(seconds)
    for calls in (4, 9):  # it is over, or its plan was another
        assert predictor.pause("one", "search", calls) == History().pause("one", "search", calls)
    assert oracle(knows=["calls"]).pause("one", "search", 1).mean == 1.0


def test_a_certain_pause_counts_down_and_is_never_about_to_return() -> None:
    pause = certain(8.0)
    for elapsed in (0.0, 0.5, 4.0, 6.0):
        assert pause.remaining(elapsed) == pytest.approx(max(8.0 - elapsed, OVERDUE * elapsed))
    assert pause.remaining(8.0) == pytest.approx(8.0)
    assert pause.remaining(1000.0) == OVERDUE * 1000
    assert pause.survival(7.99) == pytest.approx(1.0)
    assert pause.survival(8.0) < 1e-6
    assert certain(0.0).remaining(0.0) < 1e-6


def test_it_knows_only_what_it_is_told() -> None:
    pauses = oracle(knows=["pauses"])
    forecast = pauses.forecast(about())
    assert forecast.pause_seconds == 2.0
    assert forecast.decode_tokens == learned().decode_tokens
    assert forecast.result_tokens == learned().result_tokens
    assert forecast.ends == learned().ends
    forecast = oracle(knows=["calls"]).forecast(about())
    assert forecast.ends == (0.0, 0.0, 0.0, 1.0)
    assert forecast.pause_discount == learned().pause_discount
    assert oracle(knows=["calls"]).pause("one", "python") == History().pause("one", "python")
    forecast = oracle(knows=["lengths", "results"]).forecast(about())
    assert (forecast.decode_tokens, forecast.segment_tokens) == (50, 50)
    assert forecast.result_tokens == 320 / 3
    assert forecast.pause_seconds == learned().pause_seconds


def test_of_what_it_does_not_know_it_learns() -> None:
    history = History()
    predictor = Oracle(truth, history, knows=["calls"])
    for _ in range(50):
        predictor.observe_segment(about(), 900, True)
        predictor.observe_result("agent", 70)
        predictor.observe_pause("one", "agent", 33.0)
        predictor.observe_end(about(5), {"agent"})
    assert predictor.forecast(about()).segment_tokens > 800
    assert predictor.forecast(about()).result_tokens < 75
    assert predictor.pause("one", "agent").mean > 30
    assert predictor.forecast(about(key="another")) == history.forecast(about(key="another"))
    assert predictor.forecast(about(calls=9)) == history.forecast(about(calls=9))


def many(error: float, sessions: int = 700) -> list[Forecast]:
    plan = Session(
        "", "", 0.0, (*(Segment(100, 100, "t", 100.0) for _ in range(100)), Segment(1, 1))
    )
    predictor = Oracle(lambda key: plan, History(), error)
    return [predictor.forecast(about(key=f"s{index}")) for index in range(sessions)]


@pytest.mark.parametrize("error", [0.05, 0.3])
def test_errors_have_the_mean_and_the_spread_that_they_should(error: float) -> None:
    forecasts = many(error)
    for drawn in (
        [forecast.decode_tokens for forecast in forecasts],
        [forecast.pause_seconds for forecast in forecasts],
        [float(len(forecast.ends) - 1) for forecast in forecasts],
    ):
        assert fmean(drawn) == pytest.approx(100, abs=4 * 100 * error / 700**0.5)
        assert stdev(drawn) == pytest.approx(100 * error, rel=0.1)
    lengths = [forecast.decode_tokens for forecast in forecasts]
    pauses = [forecast.pause_seconds for forecast in forecasts]
    together = fmean((a - 100) * (b - 100) for a, b in zip(lengths, pauses, strict=True))
    assert abs(together) < 0.1 * (100 * error) ** 2


def test_a_wrong_prediction_is_above_zero() -> None:
    drawn = [forecast.pause_seconds for forecast in many(3.0, 300)]
    assert min(drawn) == pytest.approx(MIN_SHARE * 100)
    assert max(drawn) > 400


def test_an_error_stays_the_same_however_often_and_in_whatever_order_it_is_asked_for() -> None:
    first, second = oracle(0.5), oracle(0.5)
    forwards = [first.forecast(about(calls)) for calls in range(4)]
    backwards = [second.forecast(about(calls)) for calls in reversed(range(4))]
    assert forwards == backwards[::-1] == [first.forecast(about(calls)) for calls in range(4)]
    assert forwards != [oracle(0.5, seed=1).forecast(about(calls)) for calls in range(4)]
    first.forecast(about(1))
    assert first.pause("one", "python").mean == pytest.approx(forwards[1].pause_seconds)
    alone = oracle(0.5, knows=["pauses"]).forecast(about(1))
    assert alone.pause_seconds == forwards[1].pause_seconds


def test_sessions_and_segments_err_for_themselves() -> None:
    drawn = [
        one.decode_tokens / segment.decode_tokens
        for key in ("a", "b")
        for one, segment in zip(expect(SESSION, key, 0.5, 0), SESSION.segments, strict=True)
    ]
    assert len(set(drawn)) == 8


def test_who_decodes_longer_than_expected_is_overdue() -> None:
    predictor = next(
        predictor
        for seed in range(99)
        if (predictor := oracle(0.5, seed)).forecast(about()).decode_tokens < 40
    )
    assert predictor.forecast(about(decoded=45)).decode_tokens == OVERDUE * 45
    assert predictor.forecast(about()).decode_tokens > 0


def test_what_it_keeps_is_bounded_and_drawn_again_the_same() -> None:
    predictor = Oracle(lambda key: SESSION, History(), 0.5)
    first = predictor.forecast(about(1))
    for index in range(MAX_SESSIONS + 1):
        predictor.forecast(about(key=f"s{index}"))
    assert predictor.forecast(about(1)) == first
    assert len(predictor._expected) == len(predictor._at) == MAX_SESSIONS


def test_by_name() -> None:
    predictor: Predictor = make_predictor("oracle:knows=pauses+calls", truth=truth)
    assert predictor.name == "oracle"
    forecast = predictor.forecast(about())
    assert (forecast.pause_seconds, forecast.ends) == (2.0, (0.0, 0.0, 0.0, 1.0))
    assert forecast.decode_tokens == learned().decode_tokens
    wrong = make_predictor("oracle:error=0.5,seed=3", truth=truth).forecast(about())
    assert wrong == oracle(0.5, 3).forecast(about())


@dataclass(frozen=True)
class Case:
    spec: str
    says: str


@pytest.mark.parametrize(
    "case",
    [
        Case("oracle:error=-0.1", "error"),
        Case("oracle:error=nan", "error"),
        Case("oracle:knows=all", "lengths, pauses, calls, results"),
        Case("oracle:truth=1", "truth"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(case: Case) -> None:
    with pytest.raises(ValueError, match=case.says):
        make_predictor(case.spec, truth=truth)


def test_without_a_truth_there_is_no_oracle() -> None:
    with pytest.raises(ValueError, match="simulation"):
        names.make_predictor("oracle")


def test_history_after_the_oracle_is_the_same_history() -> None:
    """What an oracle hands on is all that a history would have seen."""
    history, behind, random = History(), History(), Random(2)
    predictor = Oracle(truth, behind)
    for _ in range(100):
        tokens, seconds = random.randrange(200), random.random()
        for one in (history, predictor):
            one.observe_segment(about(), tokens, True)
            one.observe_result(None, tokens)
            one.observe_pause("one", None, seconds)
            one.observe_end(about(tokens), {"agent"})
    assert behind.to_wire() == history.to_wire()
    assert behind.pause("one", None) == history.pause("one", None)
