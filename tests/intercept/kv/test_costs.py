"""Steps, chunks and copies priced; and the model that follows what is measured."""

import json
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.intercept.kv.costs import PRIOR, SMALLEST_CHUNK, CostModel, CostTracker

from .views import COST

SIZES = [(1, 500), (16, 12_000), (64, 40_000), (256, 8_000), (400, 20_000)]


def follow(tracker: CostTracker, truth: CostModel, steps: int, hiccup_every: int = 0) -> None:
    for index in range(steps):
        tokens, context = SIZES[index % len(SIZES)]
        seconds = truth.step_seconds(tokens, context)
        if hiccup_every and index % hiccup_every == 0:
            seconds *= 10
        tracker.observe_step(tokens, context, seconds)


def errors(model: CostModel, truth: CostModel) -> list[float]:
    return [abs(model.step_seconds(*size) / truth.step_seconds(*size) - 1) for size in SIZES]


def test_a_step_has_a_knee() -> None:
    assert COST.step_seconds(0, 0) == 0.01
    assert COST.step_seconds(256, 0) == pytest.approx(0.01 + 256 * 2e-5)
    assert COST.step_seconds(356, 1000) == pytest.approx(0.01 + 256 * 2e-5 + 100 * 8e-5 + 3e-5)


def test_a_chunk_is_what_is_left_up_to_saturation() -> None:
    assert COST.chunk_tokens(0) == 256
    assert COST.chunk_tokens(56) == 200
    assert COST.chunk_tokens(250) == COST.chunk_tokens(9999) == SMALLEST_CHUNK


def test_recompute_takes_whole_steps() -> None:
    alone = COST.recompute(512, 0, 0)
    assert alone.chunks == 2
    assert alone.seconds == pytest.approx(2 * COST.step_seconds(256, 256))
    assert alone.seconds_per_chunk == pytest.approx(alone.seconds / 2)
    beside = COST.recompute(400, 56, 20_000)
    assert beside.chunks == 2
    added = COST.step_seconds(256, 20_200) - COST.step_seconds(56, 20_000)
    assert beside.seconds_per_chunk == pytest.approx(added)
    assert beside.seconds == pytest.approx(2 * COST.step_seconds(256, 20_200))
    assert COST.recompute(0, 56, 20_000) == (0.0, 0, 0.0)


@given(st.integers(0, 5000), st.integers(0, 500), st.integers(0, 600), st.integers(0, 50_000))
def test_more_to_recompute_takes_longer(
    missing: int, more: int, running: int, context: int
) -> None:
    less, all_of_it = (COST.recompute(n, running, context) for n in (missing, missing + more))
    assert less.seconds <= all_of_it.seconds + 1e-12
    assert less.chunks * less.seconds_per_chunk <= (
        all_of_it.chunks * all_of_it.seconds_per_chunk + 1e-12
    )


def test_the_slower_way_bounds_the_link() -> None:
    cost = replace(COST, out_rate=1000.0, in_rate=4000.0)
    assert (cost.swap_seconds(2000, "out"), cost.swap_seconds(2000, "in")) == (2.0, 0.5)
    assert cost.link_tokens(0.5) == 500


def test_without_a_link_nothing_is_copied() -> None:
    cost = replace(COST, out_rate=0.0, in_rate=0.0)
    assert cost.swap_seconds(1, "out") == inf
    assert cost.swap_seconds(0, "out") == 0.0
    assert cost.link_tokens(10.0) == 0
    assert not cost.swap_pays


def test_swapping_pays_from_a_quarter_of_the_speed_of_recomputing() -> None:
    recomputed_per_second = 1 / COST.prefill_seconds_per_token
    assert replace(COST, in_rate=0.251 * recomputed_per_second).swap_pays
    assert not replace(COST, in_rate=0.249 * recomputed_per_second).swap_pays
    assert PRIOR.swap_pays  # or it would never be measured


def test_over_the_wire_and_back() -> None:
    assert CostModel.from_wire(json.loads(json.dumps(COST.to_wire()))) == COST


@pytest.mark.parametrize(
    "change", [{"base": -1}, {"per_token": nan}, {"in_rate": inf}, {"saturation": 0}, {"base": "x"}]
)
def test_a_broken_record_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        CostModel.from_wire({**COST.to_wire(), **change})


def test_a_record_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match="saturation"):
        CostModel.from_wire({k: v for k, v in COST.to_wire().items() if k != "saturation"})


def test_a_true_model_stays() -> None:
    tracker = CostTracker(COST)
    follow(tracker, COST, 300)
    assert max(errors(tracker.model, COST)) < 1e-9


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 8.0])
def test_a_lasting_change_is_followed_within_a_few_hundred_steps(factor: float) -> None:
    slower = replace(
        COST,
        base=COST.base * factor,
        per_token=COST.per_token * factor,
        per_token_beyond=COST.per_token_beyond * factor,
        per_context=COST.per_context * factor,
    )
    tracker = CostTracker(COST)
    follow(tracker, slower, 400)
    assert max(errors(tracker.model, slower)) < 0.13


def test_an_engine_of_another_shape_is_learned() -> None:
    laptop = CostModel(0.003, 8e-4, 8e-4, 1e-7, 256)
    tracker = CostTracker(PRIOR)
    before = max(errors(tracker.model, laptop))
    follow(tracker, laptop, 3000)
    assert before > 1.5 > 0.3 > max(errors(tracker.model, laptop))


def test_a_hiccup_hardly_counts() -> None:
    tracker = CostTracker(COST)
    tracker.observe_step(16, 12_000, 10 * COST.step_seconds(16, 12_000))
    assert 0 < errors(tracker.model, COST)[1] <= 0.0501
    tracker = CostTracker(COST)
    follow(tracker, COST, 1000, hiccup_every=51)
    assert max(errors(tracker.model, COST)) < 0.1


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5000),
            st.integers(0, 10**6),
            st.floats(allow_nan=True, allow_infinity=True),
        ),
        max_size=40,
    )
)
def test_no_measurement_breaks_the_model(samples: list[tuple[int, int, float]]) -> None:
    tracker = CostTracker(COST)
    for tokens, context, seconds in samples:
        tracker.observe_step(tokens, context, seconds)
        tracker.observe_copy("in", tokens, seconds)
    assert 0 < tracker.model.step_seconds(100, 1000) < inf
    assert 0 < tracker.model.in_rate < inf


def test_the_model_is_made_only_after_an_observation() -> None:
    tracker = CostTracker(COST)
    assert tracker.model is COST
    tracker.observe_step(16, 100, 0.02)
    assert tracker.model is tracker.model


def test_copies_move_the_rate_of_their_way() -> None:
    tracker = CostTracker(COST)
    for _ in range(100):
        tracker.observe_copy("in", 1000, 1000 / 20_000)
    assert tracker.model.in_rate == pytest.approx(20_000, rel=0.05)
    assert tracker.model.out_rate == COST.out_rate


def test_the_first_copy_finds_the_rate() -> None:
    tracker = CostTracker(replace(COST, out_rate=0.0))
    tracker.observe_copy("out", 1000, 0.1)
    assert tracker.model.out_rate == pytest.approx(10_000)


def test_a_small_copy_measures_latency() -> None:
    tracker = CostTracker(COST)
    tracker.observe_copy("out", 1, 1.0)
    assert tracker.model.out_rate > 0.99 * COST.out_rate


@pytest.mark.parametrize("factor", [0.02, 10.0])
def test_a_guessed_link_is_found_by_a_few_copies(factor: float) -> None:
    tracker, measured = CostTracker(COST, link_guessed=True), CostTracker(COST)
    rate = COST.in_rate * factor
    for _ in range(3):
        tracker.observe_copy("in", 1000, 1000 / rate)
        measured.observe_copy("in", 1000, 1000 / rate)
    assert tracker.model.in_rate == pytest.approx(rate)
    assert measured.model.in_rate == pytest.approx(COST.in_rate, rel=0.2)
    assert tracker.model.out_rate == COST.out_rate


def test_one_slow_copy_of_the_first_ten_counts_as_a_tenth() -> None:
    tracker = CostTracker(COST, link_guessed=True)
    for index in range(10):
        tracker.observe_copy("in", 1000, (10.0 if index == 0 else 1.0) * 1000 / COST.in_rate)
    assert tracker.model.in_rate == pytest.approx(COST.in_rate / 1.9)
    before = tracker.model.in_rate
    tracker.observe_copy("in", 1000, 100.0 * 1000 / COST.in_rate)
    assert tracker.model.in_rate == pytest.approx(before / 1.05)


def copying(tracker: CostTracker, stall: float, steps: int, share: float = 1.0) -> None:
    """Observe steps beside copies that fill `share` of them, and that each hold up by `stall`."""
    for _ in range(steps):
        seconds = COST.step_seconds(16, 12_000)
        tokens = share * seconds * COST.out_rate
        tracker.observe_step(16, 12_000, seconds * (1 + share * stall), tokens)


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_what_copies_cost_the_steps_is_learned_apart_from_the_steps(share: float) -> None:
    tracker = CostTracker(COST)
    copying(tracker, 0.5, 2000, share)
    assert tracker.model.copy_stall == pytest.approx(0.5, rel=0.1)
    assert max(errors(tracker.model, COST)) < 0.05
    copying(tracker, 0.0, 4000, share)
    assert tracker.model.copy_stall < 0.1, "what has changed is learned anew"


def test_a_copy_that_costs_nothing_is_free_although_steps_vary() -> None:
    tracker = CostTracker(COST)
    for index in range(4000):
        seconds = COST.step_seconds(16, 12_000)
        tracker.observe_step(16, 12_000, seconds * (1.2 if index % 2 else 0.8), 20.0)
    assert tracker.model.copy_stall < 0.02


def test_one_slow_step_beside_a_copy_proves_little() -> None:
    tracker = CostTracker(COST)
    copying(tracker, 100.0, 1)
    assert tracker.model.copy_stall < 0.3


def test_swapping_pays_as_long_as_copies_hold_up_steps_for_less_than_recomputing_takes() -> None:
    recompute = COST.prefill_seconds_per_token
    both = 1 / COST.out_rate + 1 / COST.in_rate
    dear = replace(COST, copy_stall=1.01 * recompute / both)
    assert replace(COST, copy_stall=0.99 * recompute / both).swap_pays and not dear.swap_pays
    assert COST.copies_ahead_pay(0.01), "free copies always pay"
    assert not replace(COST, out_rate=0.0).copies_ahead_pay(1.0)
    # Of four copies one is used: it spares a recomputation, and all four cost their way out.
    limit = 0.25 * recompute / (1 / COST.out_rate + 0.25 / COST.in_rate)
    assert replace(COST, copy_stall=0.99 * limit).copies_ahead_pay(0.25)
    assert not replace(COST, copy_stall=1.01 * limit).copies_ahead_pay(0.25)


def test_a_doubted_link_is_measured_anew() -> None:
    tracker = CostTracker(COST)
    copying(tracker, 0.5, 500)
    tracker.doubt_link()
    assert tracker.model.copy_stall == pytest.approx(0.5, rel=0.1)
    copying(tracker, 0.0, 10)
    assert tracker.model.copy_stall < 0.15


def test_a_calibration_may_leave_the_stall_out() -> None:
    wire = replace(COST, copy_stall=0.5).to_wire()
    assert CostModel.from_wire(wire).copy_stall == 0.5
    del wire["copy_stall"]
    assert CostModel.from_wire(wire).copy_stall == 0.0


def test_the_stall_of_a_calibration_is_where_learning_starts() -> None:
    tracker = CostTracker(replace(COST, copy_stall=0.4))
    tracker.observe_step(16, 12_000, COST.step_seconds(16, 12_000))
    assert tracker.model.copy_stall == 0.4
    copying(tracker, 0.0, 1)
    assert 0.3 < tracker.model.copy_stall < 0.4
