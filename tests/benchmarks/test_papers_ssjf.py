"""The runs behind SSJF's figures: closed batches, the predictor's error, and the gains."""

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.papers.ssjf import fluid_gain
from benchmarks.papers.ssjf_batches import answered
from benchmarks.papers.ssjf_runs import (
    ACCURACY,
    BATCHINGS,
    ERROR,
    Batching,
    Load,
    Measure,
    Size,
    accuracy,
    cell_of,
    gains,
    measure,
)
from caesura.simulator.results import RunResult
from caesura.simulator.study.plan import Cell
from caesura.simulator.study.work import simulate_cell

SMALL = Size(40, 0.125)
LOAD = Load(4.0)
_, DYNAMIC, CONTINUOUS = BATCHINGS


def run_of(batching: Batching, scheduler: str = "FCFS") -> tuple[Cell, RunResult]:
    cell = cell_of(batching, scheduler, LOAD, SMALL, seed=1)
    return cell, simulate_cell(cell, lambda _: None)


def test_the_error_has_the_accuracy_of_the_papers_predictor() -> None:
    assert accuracy(ERROR) == pytest.approx(ACCURACY, abs=0.01)
    assert accuracy(0.0) == 1.0


def test_a_closed_batch_is_answered_when_its_longest_member_has_ended() -> None:
    _, run = run_of(DYNAMIC)
    batches: dict[float, list[tuple[float, float]]] = {}
    for session, end in answered(run, closed=True):
        batches.setdefault(session.segments[0][1], []).append((session.ended, end))
    assert max(len(batch) for batch in batches.values()) == DYNAMIC.most
    for batch in batches.values():
        ends = {end for _, end in batch}
        assert ends == {max(ended for ended, _ in batch)}
    firsts = sorted(batches)
    for first, following in pairwise(firsts):
        assert max(ended for ended, _ in batches[first]) < following


def test_continuous_batching_answers_at_once() -> None:
    _, run = run_of(CONTINUOUS)
    assert all(end == session.ended for session, end in answered(run, closed=False))


def test_shortest_first_gains_under_load_and_closed_batches_are_slower() -> None:
    found = {}
    for batching in BATCHINGS:
        for scheduler in ("FCFS", "SJF"):
            cell, run = run_of(batching, scheduler)
            found[batching.name, scheduler] = measure(batching, cell, run)
        base, sjf = found[batching.name, "FCFS"], found[batching.name, "SJF"]
        change, factor = gains([(base, sjf)])
        assert change < -20
        assert factor > 1.2
    # The same load in parts of the capacity is less in requests where batches are closed.
    cell = cell_of(CONTINUOUS, "FCFS", LOAD, SMALL, seed=1)
    closed = replace(cell, policy=cell_of(DYNAMIC, "FCFS", LOAD, SMALL, seed=1).policy)
    slower = measure(DYNAMIC, closed, simulate_cell(closed, lambda _: None))
    assert slower.jct > found["continuous batching", "FCFS"].jct


def test_gains_weigh_loads_alike() -> None:
    pairs = [(Measure(10.0, 1.0), Measure(5.0, 2.0)), (Measure(1.0, 1.0), Measure(1.0, 1.0))]
    assert gains(pairs) == (pytest.approx(-25.0), pytest.approx(1.5))


def test_the_fluid_gain_grows_with_the_overload() -> None:
    assert fluid_gain(1.0) == pytest.approx(1.0, abs=0.01)
    assert 1.0 < fluid_gain(2.0) < fluid_gain(4.0) < fluid_gain(16.0) < 16.0
