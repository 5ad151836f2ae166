"""The hazard predictor: what it learns of sessions, beside the tables, and over a restart."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from caesura.scheduler.policy.names import make_predictor
from caesura.scheduler.predict.facts import NO_WORDS, CallWords, Facts
from caesura.scheduler.predict.forecast import About, Forecast, Predictor, forecasts_by_name
from caesura.scheduler.predict.hazard import (
    MAX_LIVE_SESSIONS,
    MAX_ROWS_OF_A_SESSION,
    Hazard,
    LiveRows,
)
from caesura.scheduler.predict.hazard_learner import Blend, Learner
from caesura.scheduler.predict.hazard_model import FEATURES, Bins, features_of
from caesura.scheduler.predict.history import History
from caesura.scheduler.predict.tables import PausePredictor

GO_ON, LAST = CallWords((1, 2), (1,)), CallWords((3, 4), (3,))


def play(predictor: Predictor, key: str, calls: int, tells: bool = True) -> list[Forecast]:
    """Play a session whose last call's words tell that it was the last one; return forecasts.

    Segments are of 300 tokens behind a result that failed, else of 30. Long pauses follow calls
    whose number is odd.
    """
    facts, told = Facts(context_tokens=500), []
    for call in range(calls + 1):
        about = About(key, "bash" if call else "offered", call, 0, facts)
        told.append(predictor.forecast(about))
        decoded = 300 if facts.last_error else 30
        predictor.observe_segment(about, decoded, call < calls)
        if call == calls:
            predictor.observe_end(about, {"offered", about.kind})
            break
        words = (LAST if call == calls - 1 else GO_ON) if tells else NO_WORDS
        predictor.observe_pause(key, "bash", 90.0 if call % 2 else 1.0)
        predictor.observe_result("bash", 20)
        facts = facts.after_call(decoded, "bash", words)
        facts = facts.after_result(20, call % 3 == 0, 600 + 50 * call, 2.0 * call)
    return told


class Shared(Hazard):
    """A hazard predictor whose pauses another one can share."""

    def __init__(self) -> None:
        self.pauses = PausePredictor()
        super().__init__(self.pauses)


def taught(sessions: int = 200, tells: bool = True) -> Shared:
    predictor, random = Shared(), Random(1)
    for index in range(sessions):
        play(predictor, f"s{index}", random.randrange(1, 20), tells)
    return predictor


@pytest.fixture(scope="module")
def known() -> Shared:
    return taught()


def test_words_tell_that_a_session_ends(known: Hazard) -> None:
    told = play(known, "new", 9)
    assert max(forecast.ends_within(0) for forecast in told[1:-1]) < 0.3
    assert told[-1].ends_within(0) > 0.7
    assert told[-1].calls_left() < 2 < told[5].calls_left()


def test_an_error_tells_that_the_next_segment_is_long(known: Hazard) -> None:
    told = play(known, "other", 9)
    behind_errors = [told[call + 1].decode_tokens for call in range(8) if call % 3 == 0]
    others = [told[call + 1].decode_tokens for call in range(8) if call % 3]
    assert min(behind_errors) > 2 * max(others)
    assert all(len(forecast.decode_quantiles) == 16 for forecast in told)
    assert all(list(one.decode_quantiles) == sorted(one.decode_quantiles) for one in told)


def test_long_pauses_are_told_from_short_ones(known: Hazard) -> None:
    told = play(known, "paused", 12)
    odd = [forecast.long_pause for call, forecast in enumerate(told[:-1]) if call % 2]
    even = [forecast.long_pause for call, forecast in enumerate(told[:-1]) if not call % 2]
    assert sum(odd) / len(odd) > sum(even) / len(even)


def test_before_it_has_learned_it_forecasts_what_the_tables_do() -> None:
    hazard, history = Hazard(), History()
    about = About("a", "bash", 2, 0, Facts(calls=2, context_tokens=900, words=(5,)))
    ours, table = hazard.forecast(about), history.forecast(about)
    assert ours.calls_left() == pytest.approx(table.calls_left(), rel=0.05)
    assert ours.ends[0] == pytest.approx(table.ends[0], rel=0.01)
    assert ours.long_pause == pytest.approx(table.long_pause, rel=0.01)


def test_without_signals_it_stays_near_the_tables() -> None:
    hazard, history = taught(150, tells=False), History()
    random = Random(1)
    for index in range(150):
        play(history, f"s{index}", random.randrange(1, 20), tells=False)
    for calls in (0, 4, 9):
        about = About("new", "bash", calls, 0, Facts(calls=calls))
        assert hazard.forecast(about).calls_left() == pytest.approx(
            history.forecast(about).calls_left(), rel=0.5
        )


def test_a_forecast_counts_what_is_decoded(known: Hazard) -> None:
    facts = Facts(calls=1, context_tokens=600)
    left = [
        known.forecast(About("d", "bash", 1, decoded, facts)).decode_tokens
        for decoded in (0, 200, 5000, 100_000)
    ]
    assert all(0 < tokens < 1e6 for tokens in left)
    assert left[3] > left[2]  # an overdue segment goes on


def test_the_forecasts_of_its_parts(known: Hazard) -> None:
    about = About("a", "bash", 2, 0, Facts(calls=2))
    assert list(forecasts_by_name(known, about)) == ["history", "hazard-model", "hazard"]


class Told(Learner):
    """A learner that keeps what it was told, and learns nothing."""

    def __init__(self) -> None:
        super().__init__(Bins((0, 1, 5)), 2)
        self.values: list[tuple[float, bool]] = []

    def observe(self, row: Any, value: float, whole: bool = True) -> None:
        self.values.append((value, whole))


def test_an_aborted_session_counts_as_cut_off() -> None:
    learner = Told()
    live, row = LiveRows(learner), learner.row(features_of("", Facts()), np.ones(3))
    for _ in range(3):
        live.add("a", row)
    live.end("a", None)
    assert learner.values == [(3, False), (2, False), (1, False)]
    live.add("b", row)
    live.end("b", row)
    assert learner.values[3:] == [(1, True), (0, True)]


def test_live_rows_are_bounded() -> None:
    learner = Told()
    live, row = LiveRows(learner), learner.row(features_of("", Facts()), np.ones(3))
    for _ in range(MAX_ROWS_OF_A_SESSION + 10):
        live.add("long", row)
    for index in range(MAX_LIVE_SESSIONS):
        live.add(f"s{index}", row)
    assert len(learner.values) == MAX_ROWS_OF_A_SESSION
    assert not any(whole for _, whole in learner.values)


def test_a_better_forecaster_wins_its_bins() -> None:
    blend, good, bad = Blend(2), np.array([0.9, 0.9]), np.array([0.1, 0.1])
    for _ in range(300):
        blend.observe(np.array([0.9, 0.1]), np.array([0.1, 0.9]), 0, True)
    assert blend.shares[0] > 0.9 and blend.shares[1] == Blend(2).shares[1]
    for _ in range(300):
        blend.observe(good, bad, 2, True)
    assert blend.shares[0] < 0.2 and blend.shares[1] < 0.05


def test_features_are_within_bounds() -> None:
    huge = Facts(10**6, 10**9, 1e9, 10**9, 1e9, 10**9, 1e9, 10**6, True, "t", (4095,), ((4095, 9),))
    for facts in (Facts(), huge):
        features = features_of("kind", facts)
        assert features.indices[0] == 0 and features.values[0] == 1
        assert features.indices.min() >= 0 and features.indices.max() < FEATURES
        assert np.isfinite(features.values).all()


def test_over_a_restart(known: Shared) -> None:
    again = Hazard(known.pauses)
    again.restore(json.loads(json.dumps(known.to_wire())))
    assert again.to_wire() == known.to_wire()
    about = About("r", "bash", 3, 0, Facts(calls=3, words=LAST.words, heads=((3, 1),)))
    assert again.forecast(about) == known.forecast(about)


def test_the_file_of_a_history_is_read() -> None:
    history, hazard = History(), Hazard()
    for index in range(20):
        play(history, f"s{index}", 4)
    hazard.restore(history.to_wire())
    assert hazard.to_wire()["calls"] == history.to_wire()["calls"]


BROKEN: list[Callable[[dict[str, Any]], object]] = [
    lambda wire: wire.update(hazard=[]),
    lambda wire: wire["hazard"].pop("calls"),
    lambda wire: wire["hazard"]["tokens"].update(blend={"shares": [2.0]}),
    lambda wire: wire["hazard"]["calls"]["model"].update(weights="!"),
    lambda wire: wire["hazard"]["calls"]["model"].update(weights="AAAA"),
    lambda wire: wire["hazard"]["calls"]["model"].update(
        weights=wire["hazard"]["pauses"]["model"]["weights"]
    ),
    lambda wire: wire.pop("segments"),
]


@pytest.mark.parametrize("change", BROKEN)
def test_a_broken_record_is_refused_and_changes_nothing(change: Callable[..., object]) -> None:
    wire = Hazard().to_wire()
    change(wire)
    hazard = taught(3)
    before = hazard.to_wire()
    with pytest.raises(ValueError):
        hazard.restore(wire)
    assert hazard.to_wire() == before


def test_by_name() -> None:
    assert make_predictor("hazard").name == "hazard"
    with pytest.raises(ValueError, match="prediction"):
        make_predictor("hazard:words=3")
