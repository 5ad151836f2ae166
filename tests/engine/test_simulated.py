"""What the simulator says of sessions is what the real engine makes of them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.handling.workload import Segment, Session
from benchmarks.validate.compare import compare, draw
from benchmarks.validate.kept import from_wire, to_wire
from benchmarks.validate.pace import WINDOW, Paced, paces
from benchmarks.validate.real import RealRun, Setup, serve
from benchmarks.validate.sight import Seen, same_order
from benchmarks.validate.simulated import simulated
from benchmarks.validate.steps import Row, RunCost, overhead, run_cost
from caesura.intercept.kv.costs import CostModel
from caesura.scheduler.calibration import Calibration
from caesura.simulator.engine.clock import Clock
from caesura.simulator.machine import StepShape

COST = CostModel(0.01, 1e-4, 3e-4, 1e-6, 128)
SHORT = {"rate": 1.8, "seconds": 15.0, "warm_up": 2.0, "tail": 6.0, "seed": 11}


@pytest.mark.engine
@pytest.mark.slow
async def test_simulated_sessions_are_as_real_ones(tmp_path: Path) -> None:
    sessions, chosen = draw(**SHORT)
    run = await serve(Setup(), sessions, chosen, 200, tmp_path)
    found = compare(Setup(), from_wire(json.loads(json.dumps(to_wire(run)))), sessions, chosen)
    assert found["counted"] >= 8 and not found["cut"]
    real = found["real"]
    assert all(
        simulated["same_events"] == found["counted"] for simulated in found["simulated"].values()
    )
    # On a machine that others use too, steps of an even pace would miss what held everybody up.
    simulated = found["simulated"]["pace"]
    assert simulated["latency_mean"] == pytest.approx(real["latency_mean"], rel=0.5), found
    assert simulated["same_order"] > 0.9
    assert simulated["handlings"].total() == real["handlings"].total() > 0


def rows(cost: CostModel, slow_from: int = 1 << 30) -> list[Row]:
    """Steps one after the other, with a millisecond between them; some take twice as long."""
    made: list[Row] = []
    now = 100.0
    for index in range(400):
        size, context = (1, 8, 64, 200, 500)[index % 5], 100 * (index % 7 + 1)
        seconds = cost.step_seconds(size, context) * (2 if index >= slow_from else 1)
        made.append(Row(now, now + seconds - 0.001, size, context, True))
        now += seconds
    return made


def test_the_cost_of_a_run_is_found_with_what_passes_between_steps() -> None:
    found = run_cost(rows(COST))
    assert found.gap == pytest.approx(0.001)
    for size, context in ((1, 200), (100, 500), (400, 300)):
        expected = COST.step_seconds(size, context)
        assert found.cost.step_seconds(size, context) == pytest.approx(expected, rel=0.05)


def test_a_pace_follows_the_machine() -> None:
    measured, found = rows(COST, slow_from=200), RunCost(COST, 1.0, 0.0, 0.001)
    took = paces(measured, found, 100.0, measured[-1].ended - 100.0)
    assert took[0] == pytest.approx(1.0) and took[-2] == pytest.approx(2.0)
    clock = Clock()
    machine, step = Paced("", COST, took, clock), StepShape(8, 8, 8, 800, 100, 0.0)
    before = machine.seconds(step)
    clock.now = (len(took) - 2) * WINDOW
    assert machine.seconds(step) == pytest.approx(2 * before)


def test_a_run_is_simulated_in_its_blocks_and_at_its_pace() -> None:
    measured = rows(COST, slow_from=200)
    began, turn = measured[0].began, measured[200].began - measured[0].began
    seconds = measured[-1].ended - began
    cost = replace(COST, out_rate=1e5, in_rate=1e5)
    found = Calibration("25m", "float32", "cpu", "", 32, 1000, "", cost, 0, 0, 0, (), ())
    run = RealRun(found, 100, 0.0, rows=measured, began=began, seconds=seconds)
    sessions = [
        Session("early", "mix", 0.0, (Segment(64, 20),)),
        Session("late", "mix", turn + 1.0, (Segment(64, 20),)),
    ]
    steady, paced = (simulated(Setup(), run, sessions, costs) for costs in ("steps", "pace"))
    for result in (steady, paced):
        assert result.settings["machine"]["block_tokens"] == 32
        assert (result.settings["blocks"], result.settings["host_blocks"]) == (170, 100)
    early, late = (one.latency for one in steady.sessions)
    assert early == pytest.approx(late)
    # All steps together take as long, so that one half is faster than that and the other slower.
    early, late = (one.latency for one in paced.sessions)
    assert late == pytest.approx(2 * early, rel=0.02)


def test_overhead_is_what_passes_outside_of_steps() -> None:
    alone = [(99.998, 100.02), (100.9, 101.02)]
    steps = [Row(100.0, 100.015, 64, 64, True), Row(101.0, 101.01, 64, 64, True)]
    assert overhead(steps, alone[:1]) == pytest.approx(0.007)
    assert overhead(steps, alone) == pytest.approx((0.007 + 0.11) / 2)


def seen(key: str, *ends: float) -> Seen:
    segments = tuple((end - 0.2, end - 0.1, end) for end in ends)
    return Seen(key, ends[0] - 0.2, 0.0, segments, ends[-1])


def test_events_are_told_in_the_order_of_their_moments() -> None:
    right, wrong = seen("a", 1.0, 2.0), seen("a", 2.0, 1.0)
    assert right.events() == [
        *("arrive", "token 0", "pause 0", "resume 1", "token 1", "answer 1", "end"),
    ]
    assert wrong.events() != right.events()


def test_same_order_counts_pairs_of_different_sessions() -> None:
    one = [seen("a", 1.0, 4.0), seen("b", 2.0, 3.0)]
    assert same_order(one, one) == 1.0
    # Of the pairs a1-b1, a1-b2, a2-b1, a2-b2 the first is turned around.
    assert same_order(one, [seen("a", 2.5, 4.0), seen("b", 2.0, 3.0)]) == 0.75
