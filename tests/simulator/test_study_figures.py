"""What runs are judged by, against sums done by hand; intervals against published quantiles."""

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.scheduler.policy.slo import Slo
from caesura.simulator.results import SessionResult
from caesura.simulator.study.figures import figures
from caesura.simulator.study.summary import T_975, Z_975, estimate, ratio, t_quantile

from .studies import one_run, one_session

SESSIONS = [
    one_session(5.0, first=6.0, ended=95.0),  # in the warm-up
    one_session(10.0, first=10.5, ended=20.0, tool_seconds=4.0, decode_tokens=12),  # 6 s, 0.5
    one_session(20.0, first=21.0, ended=32.0, decode_tokens=60),  # 12 s, 0.2
    one_session(30.0, first=33.0, ended=75.0, tool_seconds=15.0, decode_tokens=10),  # 30 s, 3.0
    one_session(40.0, first=44.0),  # cut off
    one_session(50.0),  # never began
    one_session(60.0, first=61.0, ended=62.0),  # after the arrivals that count
]


def test_only_sessions_that_arrive_in_the_counted_span_count() -> None:
    found = figures(one_run(SESSIONS), warm_up=10.0, seconds=60.0)
    assert (found.sessions, found.unfinished) == (5, 2)
    assert found.latency_mean == pytest.approx((6 + 12 + 30) / 3)
    assert found.latency_median == 12.0
    assert found.latency_p99 == pytest.approx(12 + 0.98 * (30 - 12))
    assert found.normalized_latency == 0.5
    everything = figures(one_run(SESSIONS), warm_up=0.0, seconds=61.0)
    assert (everything.sessions, everything.unfinished) == (7, 2)
    assert everything.latency_mean == pytest.approx((90 + 6 + 12 + 30 + 2) / 5)


def test_time_to_first_token_is_of_all_that_have_one() -> None:
    found = figures(one_run(SESSIONS), warm_up=10.0, seconds=60.0)
    assert found.ttft_mean == pytest.approx((0.5 + 1 + 3 + 4) / 4)
    assert found.ttft_p99 == pytest.approx(3 + 0.97 * (4 - 3))


def test_throughput_is_what_ended_and_was_decoded_in_the_counted_span() -> None:
    found = figures(one_run(SESSIONS), warm_up=10.0, seconds=60.0)
    # Ended at 20 and 32; rows from 10 to 20, 20 to 30, ..., each a decode of more tokens.
    assert found.sessions_per_second == pytest.approx(2 / 50)
    assert found.tokens_per_second == pytest.approx((2 + 3 + 4 + 5 + 6) * 10 / 50)
    # A row counts by the part of it that lies within.
    partly = figures(one_run(SESSIONS), warm_up=12.0, seconds=26.0)
    assert partly.tokens_per_second == pytest.approx((0.8 * 20 + 0.6 * 30) / 14)


def test_goodput_counts_sessions_whose_segments_all_met_the_objective() -> None:
    def of(arrival: float, *rows: tuple[float, float, float], ended: bool = True) -> SessionResult:
        tokens = [11] * len(rows)
        end = rows[-1][2] if ended else 0.0
        times = [(arrival + sent, arrival + first, arrival + last) for sent, first, last in rows]
        one = one_session(arrival, ended=arrival + end, decode_tokens=sum(tokens))
        return replace(one, segments=times, segment_tokens=tokens)

    run = one_run(
        [
            of(10.0, (0, 2, 3), (5, 7, 8)),
            of(20.0, (0, 2, 3), (5, 7.1, 8)),  # the tool's result waited too long
            of(30.0, (0, 2, 3.1)),  # 0.11 s per token
            replace(of(40.0, (0, 1, 2)), ended=0.0),  # cut off at its tool
        ]
    )
    found = figures(run, warm_up=10.0, seconds=60.0, slo=Slo(2.0, 0.1))
    assert found.goodput_share == 1 / 4
    assert found.goodput_sessions == pytest.approx(1 / 50)
    assert found.goodput_tokens == pytest.approx((2 + 1 + 0 + 1) * 11 / 50)
    assert math.isnan(figures(run, warm_up=10.0, seconds=60.0).goodput_share)


def test_a_run_cut_off_early_is_counted_up_to_there() -> None:
    found = figures(one_run(SESSIONS, seconds=40.0), warm_up=10.0, seconds=60.0)
    assert found.sessions == 3
    assert found.sessions_per_second == pytest.approx(2 / 30)
    assert found.tokens_per_second == pytest.approx((2 + 3 + 4) * 10 / 30)


def test_shares() -> None:
    run = one_run(
        SESSIONS,
        busy_seconds=80.0,
        waste_recompute=10.0,
        waste_preserve=20.0,
        waste_stall=30.0,
        used_block_seconds=900.0,
        decode_tokens=50,
        prefill_tokens=30,
        recompute_tokens=20,
        preemptions=4,
        steps=5,
        stall_seconds=1.5,
    )
    found = figures(run, warm_up=10.0, seconds=60.0)
    assert (found.waste_recompute, found.waste_preserve, found.waste_stall) == (0.01, 0.02, 0.03)
    assert (found.busy_share, found.memory_share, found.recompute_share) == (0.8, 0.9, 0.2)
    assert (found.preemptions, found.steps, found.stall_seconds) == (4, 5, 1.5)
    assert (found.simulated_seconds, found.wall_seconds) == (100.0, 0.25)


def test_what_cannot_be_said_is_nan() -> None:
    found = figures(one_run([]), warm_up=10.0, seconds=60.0)
    assert found.sessions == found.unfinished == 0
    for name in ("latency_mean", "latency_p99", "ttft_mean", "normalized_latency"):
        assert math.isnan(getattr(found, name)), name
    assert math.isnan(found.recompute_share)
    assert found.sessions_per_second == 0.0


def test_sessions_that_decode_nothing_have_no_normalized_latency() -> None:
    silent = one_session(20.0, first=20.0, ended=25.0, decode_tokens=0)
    found = figures(one_run([silent, SESSIONS[2]]), warm_up=10.0, seconds=60.0)
    assert found.normalized_latency == pytest.approx(0.2)
    assert found.latency_mean == pytest.approx((5 + 12) / 2)


# -- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (29, 2.045), (40, 2.021), (60, 2.000),
     (120, 1.980)],
)  # fmt: skip
def test_quantiles_are_the_published_ones(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_the_table_is_the_distribution() -> None:
    """Integrate the density over the interval: 95 % of it must be there."""
    for freedom, quantile in enumerate([*T_975, t_quantile(31), t_quantile(50)], start=1):
        if freedom > len(T_975):
            freedom = {31: 31, 32: 50}[freedom]
        log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
        scale = math.exp(log_scale) / math.sqrt(freedom * math.pi)
        steps = 20_000
        width = 2 * quantile / steps
        # Simpson's rule.
        weights = [1 if i in (0, steps) else 4 if i % 2 else 2 for i in range(steps + 1)]
        inside = sum(
            weight * (1 + (i * width - quantile) ** 2 / freedom) ** (-(freedom + 1) / 2)
            for i, weight in enumerate(weights)
        )
        assert scale * inside * width / 3 == pytest.approx(0.95, abs=1e-7), freedom


def test_quantiles_fall_towards_the_normal_one() -> None:
    row = [t_quantile(freedom) for freedom in range(1, 200)]
    assert row == sorted(row, reverse=True)
    assert t_quantile(10**6) == pytest.approx(Z_975, abs=1e-5)
    with pytest.raises(ValueError, match="one degree"):
        t_quantile(0)


def test_an_estimate_by_hand() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    # s = sqrt(2.5), t(4) = 2.776.
    assert found.mean == 3.0
    assert found.half == pytest.approx(2.7764451 * math.sqrt(2.5 / 5))
    assert found.count == 5


def test_estimates_of_little() -> None:
    one = estimate([2.0, math.nan])
    assert (one.mean, one.count) == (2.0, 1)
    assert math.isnan(one.half)
    assert math.isnan(estimate([2.0, 3.0]).half)
    none = estimate([math.nan])
    assert none.count == 0
    assert math.isnan(none.mean)


def test_intervals_hold_the_truth_95_times_in_100() -> None:
    rng = random.Random(7)
    held = 0
    for _ in range(4000):
        found = estimate([rng.gauss(10.0, 2.0) for _ in range(4)])
        held += abs(found.mean - 10.0) <= found.half
    # Standard error 0.34 %.
    assert held / 4000 == pytest.approx(0.95, abs=0.014)


def test_a_ratio_by_hand() -> None:
    found = ratio([2.0, 2.0, 5.0], [4.0, 5.0, 9.0])
    assert found.mean == 0.5
    residuals = [0.0, -0.5, 0.5]
    half = 4.3026527 * statistics.stdev(residuals) / math.sqrt(3) / 6.0
    assert found.half == pytest.approx(half)


def test_pairing_takes_out_what_seeds_have_in_common() -> None:
    base = [1.0, 10.0, 100.0]
    assert ratio([0.5 * value for value in base], base).half == pytest.approx(0.0, abs=1e-12)
    # The same values, paired wrongly, say next to nothing.
    assert ratio([5.0, 50.0, 0.5], base).half > 1.0


def test_ratios_of_little() -> None:
    assert math.isnan(ratio([1.0], [0.0]).mean)
    assert math.isnan(ratio([1.0], [2.0]).half)
    assert ratio([1.0, math.nan, 3.0], [2.0, 1.0, 6.0]).mean == 0.5
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratio([1.0], [1.0, 2.0])


@given(
    st.lists(st.floats(0.1, 1e3), min_size=3, max_size=8),
    st.floats(0.1, 10.0),
)
def test_a_ratio_to_itself_is_one_and_scales(values: list[float], scale: float) -> None:
    assert ratio(values, values).mean == pytest.approx(1.0)
    found = ratio([scale * value for value in values], values)
    assert found.mean == pytest.approx(scale)
    assert found.half == pytest.approx(0.0, abs=1e-6 * scale)


def test_the_wall_clock_is_in_no_other_figure() -> None:
    run = one_run(SESSIONS)
    slow = replace(run, wall_seconds=99.0)
    left, right = (figures(each, 10.0, 60.0) for each in (run, slow))
    assert replace(left, wall_seconds=99.0) == right
