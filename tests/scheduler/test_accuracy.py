"""What was predicted is compared with what came, by measures that fit their definitions."""

import math
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as some

from caesura.scheduler.records import (
    ForecastRecord,
    PauseRecord,
    PredictionRecord,
    Record,
    SessionRecord,
    parse,
)
from caesura.scheduler.records.accuracy import (
    WINDOW_BINS,
    ChanceWindow,
    accuracies,
    brier_score,
    calibration,
    calibration_error,
    calibration_of_numbers,
    pair_accuracy,
)
from caesura.scheduler.records.outcomes import Outcome, Outcomes

from .steering import CALL, until_paused
from .world import World, make_scheduler

TABLE = PredictionRecord(
    "table", 10.0, [2.0, 9.0, 30.0], 2.5, ends_now=0.25, ends_within_3=0.5, pause_seconds=4.0
)


def forecast(calls: int, at: float, session: str = "s") -> ForecastRecord:
    return ForecastRecord(session, at, session, calls, predictions=(TABLE,))


def pause(at: float, seconds: float = 1.0, outcome: str = "resumed") -> PauseRecord:
    return PauseRecord("s", at, "s", decoded_tokens=7, outcome=outcome, pause_seconds=seconds)


def end(at: float, calls: int, outcome: str = "stop") -> SessionRecord:
    return SessionRecord("s", at, "s", decoded_tokens=40, calls=calls, outcome=outcome)


def compared(*records: Record) -> dict[str, list[tuple[int, float]]]:
    """What came, by quantity: (calls so far, value)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for each in Outcomes().add_all(records):
        found.setdefault(each.quantity, []).append((each.calls, each.actual))
    return found


def test_a_segment_is_compared_when_it_ends_and_calls_when_the_session_ends() -> None:
    # The record of a pause is written after the forecast of the segment behind it.
    records = [forecast(0, 0.0), forecast(1, 9.0), pause(2.0, 7.0), end(12.0, 1)]
    assert compared(*records) == {
        "decode_tokens": [(0, 7.0), (1, 40.0)],
        "ends_now": [(0, 0.0), (1, 1.0)],
        "pause_seconds": [(0, 7.0)],
        "calls_left": [(0, 1.0), (1, 0.0)],
        "ends_within_3": [(0, 1.0), (1, 1.0)],
    }


def test_many_calls_are_known_before_the_session_ends() -> None:
    def records() -> Iterator[Record]:
        for calls in range(6):
            yield forecast(calls, 10.0 * calls)
            yield pause(10.0 * calls + 5)

    assert compared(*records())["ends_within_3"] == [(0, 0.0), (1, 0.0), (2, 0.0)]
    assert "calls_left" not in compared(*records())


def test_a_single_value_is_no_range() -> None:
    row = PredictionRecord("exact", 10.0, [10.0, 10.0, 10.0])
    single = ForecastRecord("s", 0.0, "s", predictions=(row,))
    (tokens,) = Outcomes().add_all([single, pause(1.0)])
    assert (tokens.low, tokens.high) == (None, None)


def test_the_bound_of_few_calls_is_three() -> None:
    records = [r for calls in range(4) for r in (forecast(calls, calls), pause(calls + 0.5))]
    ended = compared(*records, forecast(4, 4.0), end(5.0, 4))
    assert dict(ended["ends_within_3"]) == {0: 0.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}


@pytest.mark.parametrize(
    "records",
    [
        [pause(1.0)],
        [end(1.0, 0)],
        [forecast(0, 2.0), pause(1.0)],
        [forecast(0, 0.0), end(1.0, 0, "abort")],
        [forecast(3, 0.0), end(1.0, 2)],
    ],
    ids=["no forecast", "no forecast of the session", "later forecast", "abort", "lost records"],
)
def test_what_is_unknown_is_not_compared(records: list[Record]) -> None:
    assert compared(*records) == {}


def test_a_pause_without_a_result_tells_nothing_of_its_duration() -> None:
    found = compared(forecast(0, 0.0), pause(1.0, 60.0, "ended"))
    assert found == {"decode_tokens": [(0, 7.0)], "ends_now": [(0, 0.0)]}


def test_a_segment_is_compared_once() -> None:
    assert len(compared(forecast(0, 0.0), pause(1.0), pause(1.0))["decode_tokens"]) == 1


def test_open_sessions_are_bounded() -> None:
    outcomes = Outcomes(max_forecasts=2)
    for name in ("a", "b", "s"):
        outcomes.add(forecast(0, 0.0, name))
    assert outcomes.add(end(1.0, 0))
    assert not outcomes.add(SessionRecord("a", 1.0, "a", outcome="stop"))


def test_the_records_of_a_scheduler_can_be_compared() -> None:
    world = World(make_scheduler(host_blocks=100))
    session = world.session("a", range(100), CALL, " 42", "done")
    until_paused(world, session)
    world.answer(session)
    world.run()
    world.drain()
    found = compared(*filter(None, map(parse, world.records)))
    assert found["decode_tokens"] == [(0, float(len(CALL))), (1, float(len("done") + 1))]
    assert found["calls_left"] == [(0, 1.0), (1, 0.0)]
    assert len(found["pause_seconds"]) == 1


FEW = some.integers(0, 6).map(float)


@given(some.lists(some.tuples(FEW, FEW), max_size=30))
def test_pair_accuracy_counts_all_pairs(rows: list[tuple[float, float]]) -> None:
    right = pairs = 0.0
    for index, (p, a) in enumerate(rows):
        for q, b in rows[:index]:
            if a != b:
                pairs += 1
                right += 0.5 if p == q else float((p < q) == (a < b))
    found = pair_accuracy([p for p, _ in rows], [a for _, a in rows])
    assert found == pytest.approx(right / pairs) if pairs else math.isnan(found)


def test_a_curve_tells_what_share_came() -> None:
    predicted, actual = [0.1, 0.1, 0.9, 1.0], [0.0, 1.0, 1.0, 1.0]
    low, high = calibration(predicted, actual)
    assert (low.count, low.predicted, low.actual) == (2, 0.1, 0.5)
    assert (high.count, high.predicted, high.actual) == (2, 0.95, 1.0)
    assert calibration_error([low, high]) == pytest.approx((2 * 0.4 + 2 * 0.05) / 4)
    assert brier_score(predicted, actual) == pytest.approx((0.01 + 0.81 + 0.01) / 4)


def test_a_curve_of_numbers_has_bins_of_like_size() -> None:
    numbers = [float(n) for n in range(315)]
    curve = calibration_of_numbers(numbers, numbers)
    assert [each.count for each in curve] == [32] * 9 + [27]
    assert calibration_error(curve) == 0.0
    assert [each.count for each in calibration_of_numbers(numbers[:39], numbers[:39])] == [39]
    assert calibration_of_numbers([], []) == []


def test_a_window_forgets_and_agrees_with_the_measures() -> None:
    rng = random.Random(1)
    # Probabilities in the middle of bins, so that a bin is a tie exactly where two are equal.
    rows = [
        ((rng.randrange(WINDOW_BINS) + 0.5) / WINDOW_BINS, float(rng.random() < 0.4))
        for _ in range(300)
    ]
    window = ChanceWindow(100)
    for predicted, actual in rows:
        window.add(predicted, actual)
    predicted, actual = [p for p, _ in rows[-100:]], [a for _, a in rows[-100:]]
    assert len(window) == 100
    assert window.auc == pytest.approx(pair_accuracy(predicted, actual))
    curve = calibration(predicted, actual, WINDOW_BINS)
    assert window.calibration_error == pytest.approx(calibration_error(curve))


def test_an_empty_window_knows_nothing() -> None:
    window = ChanceWindow()
    assert math.isnan(window.auc)
    assert math.isnan(window.calibration_error)
    with pytest.raises(ValueError, match="at least 1"):
        ChanceWindow(0)


def test_a_table_has_a_row_for_each_predictor_and_quantity() -> None:
    rows = [
        Outcome(at, "s", 0, name, quantity, predicted, actual, low, high)
        for at in range(12)
        for name, quantity, predicted, actual, low, high in [
            ("table", "decode_tokens", 10.0, 5.0 + at, 6.0, 12.0),
            ("model", "decode_tokens", 5.0 + at, 5.0 + at, None, None),
            ("table", "ends_now", 0.25, float(at == 11), None, None),
        ]
    ]
    model, table, ends = accuracies(reversed(rows))
    assert (model.predictor, model.error, model.pair_accuracy, model.covered) == (
        "model",
        0.0,
        1.0,
        None,
    )
    assert (table.count, table.pair_accuracy, table.covered) == (12, 0.5, 7 / 12)
    assert table.errors == (4.5, 2.5, 0.5, 1.5, 3.5, 5.5)
    assert ends.error == pytest.approx((11 * 0.0625 + 0.5625) / 12)
    assert model.public()["covered"] is None
