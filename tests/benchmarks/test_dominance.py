"""The verdicts on the default: against the best of the others, and only where a goal holds."""

from typing import Any

import pytest

from benchmarks.dominance.capacity import throughput
from benchmarks.dominance.cases import DEFAULT, OTHERS
from benchmarks.dominance.judge import verdicts
from benchmarks.dominance.show import counts, table
from caesura.simulator.results import RunResult, SessionResult, Totals


class Made:
    """A run with two measures for each kind of time."""

    def __init__(self, latency: float, ttft: float) -> None:
        self.figures: Any = self
        self.latency_mean = self.latency_p99 = latency
        self.ttft_mean = self.ttft_p99 = ttft


def runs(default: float, others: float, stock_ttft: float = 1.0) -> Any:
    made = {name: [Made(others + index, stock_ttft)] for index, name in enumerate(OTHERS)}
    return made | {DEFAULT: [Made(default, 1.0)]}


def test_the_default_is_held_against_the_best_of_the_others() -> None:
    mean, p99 = verdicts("case", 1.0, runs(10.4, 10.0))
    assert (mean.best, p99.best) == (OTHERS[0], OTHERS[0])
    assert mean.ratio.mean == pytest.approx(1.04)
    assert (mean.met, p99.met) == (False, True)


def test_ttft_is_held_against_stocks_at_low_load_only() -> None:
    found = {one.goal.measure: one for one in verdicts("case", 0.5, runs(10.0, 10.0, 0.9))}
    assert found["ttft_mean"].best == "stock-offload"
    assert not found["ttft_mean"].met
    assert len(list(verdicts("case", 0.8, runs(10.0, 10.0)))) == 2


def test_the_table_marks_what_misses_its_goal() -> None:
    found = list(verdicts("case", 1.0, runs(10.4, 10.0)))
    (row,) = table(found, {"case": 2.0}).rows
    assert row[:3] == ("case", "100%", "2")
    assert row[3].startswith("10.4 s, **1.040 of")
    mean, p99 = counts(found).rows
    assert mean[:5] == ("mean ≤ 1", "1", "0", "0", "case at 100%")
    assert p99[2] == "1"


def test_the_throughput_of_a_closed_loop_leaves_out_its_ends_and_sub_agents() -> None:
    ends = [0.1, 0.2, 10.0, 12.0, 14.0, 16.0, 80.0, 90.0]
    sessions = [SessionResult(str(at), "qa", 0.0, 1, ended=at) for at in ends]
    sessions.append(SessionResult("agent", "qa", 0.0, 1, ended=11.0, parent="0.1"))
    run = RunResult("", "", "", 0.0, 0, sessions, Totals(), {}, [], {})
    assert throughput(run) == pytest.approx(4 / (80.0 - 10.0))
