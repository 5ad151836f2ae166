"""What is expected of sessions from those before them, against the same thing counted out."""

import json
from collections import Counter
from collections.abc import Callable
from math import exp
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.pause_durations import OVERDUE, Durations
from caesura.scheduler.policy.names import DEFAULT_PREDICTOR, make_predictor
from caesura.scheduler.predict.forecast import About, Predictor
from caesura.scheduler.predict.history import (
    HORIZON_SECONDS,
    KIND_WINDOW,
    PRIOR_TOKENS,
    History,
    pause_discount,
)
from caesura.scheduler.predict.tables import (
    HORIZON,
    MAX_CALLS,
    MAX_KINDS,
    MAX_SESSIONS,
    MIN_ALIVE_SHARE,
    PRIOR_CALLS,
    UNKNOWN_SECONDS,
    UNSEEN_FACTOR,
    WEIGHT,
    CallCounts,
    Calls,
    Kinds,
    Lengths,
    PausePredictor,
)

TOKENS = st.lists(st.integers(0, 400), max_size=40)
CALLS = st.lists(st.integers(0, 12), max_size=40)


def about(kind: str = "search", calls: int = 0, decoded: int = 0) -> About:
    return About("session", kind, calls, decoded)


def alive(ends: tuple[float, ...]) -> list[float]:
    """The chances to come behind each of the segments."""
    chances = np.cumprod(1 - np.array(ends))
    return [float(chance) for chance in chances]


def calls_left(ends: tuple[float, ...]) -> float:
    return sum(alive(ends)[:-1])


# Lengths ------------------------------------------------------------------------------------


@given(TOKENS, st.integers(1, 20), st.integers(0, 500))
def test_what_is_left_counted_out(seen: list[int], window: int, decoded: int) -> None:
    lengths = Lengths(50.0, 2.0, window)
    for tokens in seen:
        lengths.observe(tokens)
    kept = seen[-window:]
    whole = len(kept) + 2.0
    tail = (sum(kept) + 2.0 * 50.0) / whole
    longer = [tokens - decoded for tokens in kept if tokens > decoded]
    weight = 2.0 * exp(-decoded / tail)
    expected = (sum(longer) + weight * tail) / (len(longer) + weight) if longer else tail
    assert lengths.count == len(kept)
    assert lengths.mean == pytest.approx((sum(kept) + 2.0 * tail) / whole)
    assert lengths.remaining(decoded) == pytest.approx(max(expected, OVERDUE * decoded))


def test_a_length_that_is_overdue_goes_on_in_proportion() -> None:
    lengths = Lengths(10.0, recent=[10] * 50)
    assert lengths.remaining(0) == pytest.approx(10.0)
    assert lengths.remaining(1000) == OVERDUE * 1000


@given(TOKENS, st.lists(st.integers(0, 450), min_size=1, max_size=8), st.integers(0, 999))
def test_draws_are_from_what_is_longer(seen: list[int], decoded: list[int], seed: int) -> None:
    lengths, random = Lengths(50.0, window=30), Random(seed)
    for tokens in seen:
        lengths.observe(tokens)
    uniform = np.array([[random.random() for _ in decoded] for _ in range(3)])
    drawn = lengths.samples(np.array(decoded, dtype=np.int64), uniform)
    for (row, column), length in np.ndenumerate(drawn):
        longer = [tokens for tokens in seen[-30:] if tokens > decoded[column]]
        assert length in (longer or [max(1, UNSEEN_FACTOR * decoded[column])])
        assert length == lengths.sample(decoded[column], float(uniform[row, column]))


def test_draws_come_as_often_as_they_were_seen() -> None:
    lengths, random = Lengths(50.0, recent=[5] * 10 + [20, 30, 30, 30]), Random(0)
    drawn = Counter(lengths.sample(5, random.random()) for _ in range(4000))
    assert set(drawn) == {20, 30}
    assert drawn[30] / 4000 == pytest.approx(0.75, abs=0.03)


def test_a_draw_after_an_observation_knows_it() -> None:
    lengths, first = Lengths(50.0, window=2, recent=[5]), np.zeros((1, 1))
    nothing = np.zeros(1, dtype=np.int64)
    assert lengths.samples(nothing, first).item() == 5
    lengths.observe(3)
    assert lengths.samples(nothing, first).item() == 3
    lengths.observe(7)
    lengths.observe(8)
    assert lengths.samples(nothing, first).item() == 7


@given(TOKENS)
def test_lengths_over_the_wire_and_back(seen: list[int]) -> None:
    lengths = Lengths(50.0, 3.0, 10, seen)
    again = Lengths.from_wire(json.loads(json.dumps(lengths.to_wire())))
    assert again.to_wire() == lengths.to_wire()
    again.observe(9)
    lengths.observe(9)
    assert again.to_wire() == lengths.to_wire()
    assert again.remaining(7) == lengths.remaining(7)


@pytest.mark.parametrize(
    "change",
    [
        {"prior_tokens": 0},
        {"prior_weight": float("nan")},
        {"window": 0},
        {"recent": [-1]},
        {"recent": [10**20]},
        {"recent": ["many"]},
        {"recent": None},
    ],
)
def test_broken_lengths_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        Lengths.from_wire({**Lengths(1.0).to_wire(), **change})


def test_no_length_is_below_zero() -> None:
    lengths = Lengths(1.0)
    with pytest.raises(ValueError, match="-1"):
        lengths.observe(-1)
    assert lengths.count == 0


# Calls --------------------------------------------------------------------------------------


@given(CALLS, st.floats(0.01, 0.99))
def test_hazards_counted_out(ended: list[int], prior: float) -> None:
    counts = CallCounts()
    for calls in ended:
        counts.observe_end(calls)
    hazards = counts.hazards(np.full(MAX_CALLS + HORIZON, prior))
    for calls in (*range(15), MAX_CALLS - 1):
        here = ended.count(calls)
        so_far = sum(other >= calls for other in ended)
        assert hazards[calls] == pytest.approx((here + WEIGHT * prior) / (so_far + WEIGHT))


def test_before_anything_has_ended_every_segment_may_be_the_last() -> None:
    ends = Calls().ends("new", 0)
    assert ends == pytest.approx([1 / (1 + PRIOR_CALLS)] * len(ends))
    assert calls_left(ends) == pytest.approx(PRIOR_CALLS, rel=0.01)
    assert alive(ends)[-1] <= MIN_ALIVE_SHARE < alive(ends)[-2]
    assert len(Calls(mean=500.0).ends("new", 0)) == HORIZON


def test_what_is_left_depends_on_how_many_there_were() -> None:
    calls = Calls()
    for _ in range(300):
        calls.observe_end("fixed", 7)
    for made in range(7):
        ends = calls.ends("fixed", made)
        assert max(ends[: 7 - made], default=0) < 0.01
        assert ends[7 - made] > 0.98
    assert calls.ends("fixed", 3)[0] == pytest.approx(WEIGHT * 0.2 / (302) * WEIGHT / 302)


def test_means_are_those_that_were_seen() -> None:
    calls, random = Calls(), Random(3)
    made = [round(random.gammavariate(3, 3)) for _ in range(900)]
    for one in made:
        calls.observe_end("a", one)
    for so_far in (0, 5, 12):
        left = [one - so_far for one in made if one >= so_far]
        expected = sum(left) / len(left)
        assert calls_left(calls.ends("a", so_far)) == pytest.approx(expected, rel=0.05)


def test_kinds_differ_and_a_new_one_is_like_all() -> None:
    calls = Calls()
    for _ in range(100):
        calls.observe_end("brief", 1)
        calls.observe_end("long", 29)
    assert calls_left(calls.ends("brief", 0)) == pytest.approx(1, abs=0.3)
    assert calls_left(calls.ends("long", 0)) == pytest.approx(29, abs=1.5)
    assert calls_left(calls.ends("new", 0)) == pytest.approx(15, abs=1.5)
    assert calls_left(calls.ends("new", 2)) == pytest.approx(27, abs=1.5)


def test_a_kind_of_few_sessions_learns_from_the_others() -> None:
    calls = Calls()
    calls.observe_end("rare", 2)
    before = calls_left(calls.ends("rare", 3))
    for _ in range(100):
        calls.observe_end("common", 20)
    assert calls_left(calls.ends("rare", 3)) == pytest.approx(17, abs=1)
    assert before == pytest.approx(PRIOR_CALLS, rel=0.01)


def test_what_is_offered_tells_of_all_that_were_offered_it() -> None:
    """One in ten calls nothing, the others call six times, and are then of another kind."""
    calls = Calls()
    for one in range(500):
        made = 0 if one % 10 == 0 else 6
        for kind in {"offered", "offered" if made == 0 else "called"}:
            calls.observe_end(kind, made)
    first = calls.ends("offered", 0)
    assert first[0] == pytest.approx(0.1, abs=0.01)
    assert calls_left(first) == pytest.approx(0.9 * 6, rel=0.05)
    assert calls_left(calls.ends("called", 1)) == pytest.approx(5, rel=0.05)


def test_sessions_without_end_are_forgotten_too() -> None:
    counts = CallCounts()
    for _ in range(5 * MAX_SESSIONS):
        counts.observe_end(MAX_CALLS)
    assert counts.to_wire()["ended"] == []
    assert MAX_SESSIONS / 2 <= counts.to_wire()["longer"] <= MAX_SESSIONS


def test_sessions_without_end_are_never_expected_to_end() -> None:
    calls = Calls()
    for _ in range(200):
        calls.observe_end("endless", 1000)
    for made in (0, 100, MAX_CALLS - 1, MAX_CALLS, 5000):
        ends = calls.ends("endless", made)
        assert len(ends) == HORIZON
        assert max(ends) < 0.01


def test_recent_sessions_count_more() -> None:
    calls = Calls()
    for made in (1, 9):
        for _ in range(3 * MAX_SESSIONS):
            calls.observe_end("a", made)
    assert calls_left(calls.ends("a", 0)) > 8
    assert calls.kinds.together.sessions <= MAX_SESSIONS


def test_a_session_has_no_fewer_than_no_calls() -> None:
    with pytest.raises(ValueError, match="-1"):
        Calls().observe_end("a", -1)
    with pytest.raises(ValueError, match="mean"):
        Calls(0.0)


# Kinds --------------------------------------------------------------------------------------


def test_the_kinds_seen_last_are_kept() -> None:
    kinds = Kinds(CallCounts(), lambda _: CallCounts(), most=3)
    for kind in ("a", "b", "c", "a", "d"):
        kinds.learn(kind).observe_end(1)
    assert [kind for kind in "abcd" if kinds.find(kind)] == ["a", "c", "d"]
    assert kinds.learn("a").sessions == 2
    assert len(kinds) == 3


# History ------------------------------------------------------------------------------------


def test_a_cold_start_is_sane() -> None:
    forecast = History().forecast(about("no_such_kind"))
    assert forecast.decode_tokens == forecast.segment_tokens == PRIOR_TOKENS
    assert forecast.result_tokens == PRIOR_TOKENS
    assert forecast.pause_seconds == UNKNOWN_SECONDS
    assert forecast.pause_discount == pytest.approx(5 / 65)
    assert calls_left(forecast.ends) == pytest.approx(PRIOR_CALLS, rel=0.01)
    assert History().forecast(about("calculator")).pause_seconds == 0.001
    assert History(calls=9.0).forecast(about()).ends[0] == pytest.approx(0.1)


def test_it_learns_by_kind_and_tool() -> None:
    history = History()
    for _ in range(100):
        history.observe_segment(about("search"), 20, True)
        history.observe_segment(about("write"), 500, True)
        history.observe_result("search", 800)
        history.observe_pause("session", "search", 3.0)
        history.observe_end(about("search", 2), {"search"})
    search, write = history.forecast(about("search")), history.forecast(about("write"))
    assert search.segment_tokens == pytest.approx(20, rel=0.05)
    assert write.segment_tokens == pytest.approx(500, rel=0.05)
    assert search.result_tokens == pytest.approx(800, rel=0.05)
    assert search.pause_seconds == pytest.approx(3.0, rel=0.05)
    assert search.ends[0] < 0.05 < 0.9 < search.ends[2]
    new = history.forecast(about("new"))
    assert new.segment_tokens == pytest.approx(260, rel=0.05)
    assert history.forecast(about("write", decoded=400)).decode_tokens < 130


def test_a_new_kind_starts_as_all_are() -> None:
    history = History()
    for _ in range(200):
        history.observe_segment(about("old"), 300, True)
    history.observe_segment(about("new"), 30, True)
    assert 100 < history.forecast(about("new")).segment_tokens < 200


def test_pauses_are_those_of_the_predictor_that_is_shared() -> None:
    pauses = PausePredictor()
    history = History(pauses)
    before = history.forecast(about()).pause_discount
    pauses.observe("search", 500.0)
    assert history.pause("anyone", "search") is pauses.durations_for("search")
    assert history.forecast(about()).pause_discount > before
    history.observe_pause("session", None, 7.0)
    assert pauses.durations_for(None).recent == (7.0,)


def test_what_is_remembered_is_bounded() -> None:
    history = History()
    for index in range(MAX_KINDS + 10):
        history.observe_segment(about(f"k{index}"), 1, True)
        history.observe_result(f"k{index}", 1)
        history.observe_end(about(f"k{index}", 1), {f"k{index}"})
        history.forecast(about(f"k{index}"))
    for _ in range(2 * KIND_WINDOW):
        history.observe_segment(about("k500"), 1, True)
    wire = history.to_wire()
    assert len(wire["segments"]["kinds"]) == len(wire["results"]["kinds"]) == MAX_KINDS
    assert len(wire["calls"]["kinds"]) == MAX_KINDS
    assert len(wire["segments"]["kinds"]["k500"]["recent"]) == KIND_WINDOW


@given(
    st.floats(0.01, 500),
    st.floats(0.1, 5),
    st.lists(st.floats(0, 900), max_size=20).map(tuple),
)
def test_the_discount_is_the_integral(
    prior: float, weight: float, recent: tuple[float, ...]
) -> None:
    """E[1 - exp(-T/H)] = 1/H * the integral of P(T > t) exp(-t/H), by parts."""
    durations = Durations(prior, weight, recent)
    u = (np.arange(20_000) + 0.5) / 20_000  # t = -H log(1 - u) turns the weight into du
    survival = [durations.survival(-HORIZON_SECONDS * np.log1p(-x)) for x in u[::20]]
    assert pause_discount(durations) == pytest.approx(np.mean(survival), abs=2e-3)


def test_the_discount_of_no_time_and_of_ever() -> None:
    assert pause_discount(Durations(1e-9)) < 1e-9
    assert pause_discount(Durations(1.0, recent=(0.0,) * 100)) < 0.01
    assert pause_discount(Durations(1e9)) == pytest.approx(1)


def test_over_a_restart() -> None:
    history, random = History(), Random(1)
    for _ in range(500):
        kind = random.choice(["search", "write", "", "ü"])
        history.observe_segment(about(kind), random.randrange(300), True)
        history.observe_result(kind or None, random.randrange(300))
        history.observe_end(about(kind, random.randrange(400)), {kind})
    again = History()
    again.restore(json.loads(json.dumps(history.to_wire())))
    assert again.to_wire() == history.to_wire()
    for kind in ("search", "ü", "new"):
        for calls in (0, 300):
            one = about(kind, calls, 20)
            assert again.forecast(one) == history.forecast(one)
    again.observe_segment(about("search"), 3, True)
    assert again.to_wire() != history.to_wire()


def broken(change: Callable[[dict[str, dict[str, object]]], object]) -> object:
    history = History()
    history.observe_segment(about("a"), 1, True)
    history.observe_result("a", 1)
    history.observe_end(about("a", 1), {"a"})
    wire = history.to_wire()
    change(wire)
    return wire


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        broken(lambda wire: wire.pop("calls")),
        broken(lambda wire: wire["segments"].pop("together")),
        broken(lambda wire: wire["segments"].update(kinds=[])),
        broken(lambda wire: wire["results"].update(kinds={"a": {}})),
        broken(lambda wire: wire["calls"].update(together={"ended": []})),
        broken(lambda wire: wire["calls"].update(kinds={1: {}})),
        broken(lambda wire: wire["calls"]["together"].update(longer=-1)),  # type: ignore[attr-defined]
        broken(lambda wire: wire["calls"]["together"].update(ended=[1] * 999)),  # type: ignore[attr-defined]
    ],
)
def test_a_broken_record_is_refused(wire: dict[str, object]) -> None:
    history = History()
    history.observe_segment(about("b"), 5, True)
    before = history.to_wire()
    with pytest.raises(ValueError):
        history.restore(wire)
    assert history.to_wire() == before


def test_by_name() -> None:
    pauses = PausePredictor()
    predictor: Predictor = make_predictor(DEFAULT_PREDICTOR, pauses)
    assert predictor.name == "history"
    predictor.observe_pause("session", "search", 4.0)
    assert pauses.durations_for("search").count == 1
    assert make_predictor("history:calls=9").forecast(about()).ends[0] == pytest.approx(0.1)
    for spec in ("prophet", "history:pauses=3", "history:calls=0", "oracle"):
        with pytest.raises(ValueError, match="prediction"):
            make_predictor(spec)
