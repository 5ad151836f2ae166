"""What runs measure: sums, waste and the timeline."""

from dataclasses import replace

import pytest

from caesura.simulator.engine import measure as timelines
from caesura.simulator.engine import simulate
from caesura.simulator.engine.clock import Agenda
from caesura.simulator.engine.measure import SUMMED, Levels, Timeline
from caesura.simulator.results import TIMELINE

from .simulated import PRESERVE, STOCK, SWAP, machine, session, workload


def test_things_happen_in_their_order() -> None:
    agenda: Agenda[str] = Agenda()
    for at, thing in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (3.0, "last")):
        agenda.add(at, thing)
    assert agenda.take_due(0.5) == []
    assert agenda.next_at == 1.0
    assert agenda.take_due(2.0) == [(1.0, "first"), (1.0, "second"), (2.0, "late")]
    assert agenda.take_due(9.0) == [(3.0, "last")] and agenda.next_at is None


def test_memory_in_use() -> None:
    run = simulate(workload(session("one", (20, 3, 1.0), (5, 2))), machine(), PRESERVE)
    # Two blocks for 30 + 22 ms, through the second of its tool, and for 16 + 11 ms.
    assert run.totals.used_block_seconds == pytest.approx(2 * 1.079)
    stock = simulate(workload(session("one", (20, 3, 1.0), (5, 2))), machine(), STOCK)
    assert stock.totals.used_block_seconds == pytest.approx(2 * (0.052 + 0.033))


def test_memory_that_is_filled_again() -> None:
    """InferCept, equation 1: the request's own memory, and the others' for as long as it adds."""
    one = session("one", (64, 1, 0.5), (10, 1))
    other = session("other", (10, 60))
    policy = replace(STOCK, prefix_caching=False)
    run = simulate(workload(one, other), machine(), policy)
    assert run.totals.recompute_tokens == 64
    # It computes 75 tokens beside one that decodes: 64 ms of the 86 are for what was there before.
    # At that time it fills 5 blocks. The other has come to 16 + 32 tokens at most: 3 blocks.
    blocks = run.totals.waste_recompute - 5 * 0.086
    assert blocks == pytest.approx(4 * 0.064) or blocks == pytest.approx(3 * 0.064)
    # In blocks of 32 tokens it fills 3, and the other 2.
    large = simulate(workload(one, other), machine(block_tokens=32), policy)
    assert large.totals.waste_recompute == pytest.approx(3 * 0.086 + 2 * 0.064)


def test_memory_that_pauses_while_somebody_queues() -> None:
    pausing = session("pausing", (64, 1, 1.0), (5, 1))
    running = session("running", (160, 50), arrival=0.1)
    queueing = session("queueing", (160, 1), arrival=0.2)
    run = simulate(workload(pausing, running, queueing), machine(blocks=18), PRESERVE)
    plenty = simulate(workload(pausing, running, queueing), machine(blocks=100), PRESERVE)
    assert plenty.totals.waste_preserve == 0
    waited = run.sessions[2].segments[0][1] - 0.27  # when the step ends in which it arrives
    assert waited > 0.3
    # Four full blocks; it computes 160 tokens itself in the step in which it waits no longer.
    assert run.totals.waste_preserve == pytest.approx(4 * (waited - 0.170), rel=0.1)


def test_memory_that_stands_still() -> None:
    work = workload(session("one", (160, 2, 5.0), (5, 2)), session("busy", (10, 150)))
    small = machine(blocks=40, blocks_per_second=200)
    waits = simulate(work, small, replace(SWAP, synchronous_swap=True)).totals
    # Ten blocks go out and come back; at least those that are copied are in use meanwhile.
    assert waits.stall_seconds == pytest.approx(20 / 200)
    assert waits.waste_stall >= 10 * 20 / 200
    assert simulate(work, small, replace(SWAP, in_step=False)).totals.waste_stall == 0


def test_the_timeline_adds_up() -> None:
    work = workload(*(session(f"{i}", (64, 30, 1.0), (9, 9), arrival=i * 0.3) for i in range(20)))
    run = simulate(work, machine(blocks=40), SWAP)
    rows, totals = run.timeline, run.totals
    assert tuple(rows) == TIMELINE
    assert rows["at"] == sorted(rows["at"]) and rows["at"][-1] == pytest.approx(totals.seconds)
    assert sum(rows["seconds"]) == pytest.approx(totals.busy_seconds)
    for name in SUMMED - {"seconds"}:
        assert sum(rows[name]) == getattr(totals, name), name
    for blocks in zip(
        *(rows[f"{name}_blocks"] for name in ("running", "paused", "queued", "free")), strict=True
    ):
        assert sum(blocks) == 40 and min(blocks) >= 0
    assert max(rows["paused"]) > 1 and max(rows["host_blocks"]) > 10


def test_a_long_timeline_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MAX_ROWS", 16)
    timeline = Timeline()
    for step in range(1, 401):
        timeline.add(seconds=0.05, decode_tokens=1)
        if timeline.due(step * 0.1):
            timeline.sample(step * 0.1, Levels(running=step, used=step), 0, 1000)
    rows = timeline.columns()
    assert 8 <= len(rows["at"]) < 16
    assert rows["running"] == sorted(rows["running"])
    apart = {round(b - a, 3) for a, b in zip(rows["at"], rows["at"][1:], strict=False)}
    assert len(apart) <= 2 and min(apart) > 2
    done = rows["running"][-1]
    assert sum(rows["decode_tokens"]) == done
    assert sum(rows["seconds"]) == pytest.approx(0.05 * done)
