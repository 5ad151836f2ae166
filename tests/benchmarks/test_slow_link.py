"""The table of `benchmarks.slow_link`: what is learned, what is lost, what is shown."""

from typing import Any

import pytest

from benchmarks.slow_link.measure import Company
from benchmarks.slow_link.series import delay, learned, table
from caesura.intercept.kv.costs import CostModel, CostTracker

COST = CostModel(0.01, 1e-4, 3e-4, 0.0, 100, out_rate=50_000.0, in_rate=50_000.0)


def row(gb_per_second: float, load: float, lost: float) -> dict[str, Any]:
    pairs = [[{"seconds": load, "lost_seconds": lost}, {"seconds": 0.5, "lost_seconds": 0.4}]] * 2
    return {
        "gb_per_second": gb_per_second,
        "link_tokens_per_second": 1000.0,
        "recompute_tokens_per_second": 2000.0,
        "learned": {"out": 1.0, "in": 0.9},
        "copies_until_near": {"out": 1, "in": None},
        "copies": {"out": 3, "in": 40},
        "swaps": True,
        "pairs": {"0": pairs, "4": pairs},
    }


def test_lost_time_is_what_the_pace_before_would_have_brought() -> None:
    company = Company()
    company.moments = [0.1 * index for index in range(1, 11)] + [1.5, 2.0]
    # Ten tokens a second before, and one in the second after: nine tokens' time is lost.
    assert company.lost_seconds(0.05, 1.05, 2.0) == pytest.approx(0.95 - 0.1)
    assert Company().lost_seconds(0.0, 1.0, 2.0) == 0.0


def test_rates_are_learned_by_copies_in_their_order() -> None:
    copies = [("out", 1000, 0.2, 0.0), ("in", 1000, 1.0, 0.0), ("in", 1000, 2.0, 0.0)]
    found = learned(CostTracker(COST, link_guessed=True), copies, 5000.0)
    assert found["learned"] == {"out": pytest.approx(1.0), "in": pytest.approx(2000 / 3000 / 5)}
    assert found["copies_until_near"] == {"out": 1, "in": None}
    assert found["copies"] == {"out": 1, "in": 2}
    assert found["swaps"] is False


def test_all_delays_count_those_of_the_requests_beside() -> None:
    assert delay({"seconds": 2.0, "lost_seconds": 0.5}, 0) == 2.0
    assert delay({"seconds": 2.0, "lost_seconds": 0.5}, 4) == 4.0


def test_the_table_compares_loads_with_recomputation() -> None:
    slow, fast = table([row(0.04, 0.25, 0.0), row(0.01, 1.0, 0.1)]).rows
    assert slow[:5] == ("0.01", "0.50", "1.00, 0.90", "1 of 3, - of 40", "yes")
    # Two pairs have no spread.
    assert (slow[5], fast[5]) == ("2.000, 2.000", "0.500, 0.500")
    assert fast[7].startswith(f"{0.25 / 2.1:.3f}")
