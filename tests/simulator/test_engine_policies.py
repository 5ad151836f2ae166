"""Every named policy serves crowds of sessions in scarce memory, loses nothing and ends."""

from typing import Any

import pytest
from vllm import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from caesura.simulator.engine import core as engine_core
from caesura.simulator.engine import simulate
from caesura.simulator.engine.build import build_scheduler
from caesura.simulator.engine.check import check_invariants
from caesura.simulator.engine.clock import Clock
from caesura.simulator.engine.plan import plan_for
from caesura.simulator.engine.tokens import Tokens
from caesura.simulator.policy import POLICIES, Policy
from tests.simulator.simulated import (
    PRESERVE,
    STOCK,
    crowd,
    first_computations,
    machine,
    session,
    workload,
)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_policies_serve_crowds(policy: Policy, seed: int) -> None:
    work = crowd(seed)
    run = simulate(
        work, machine(blocks=60, host_blocks=100, blocks_per_second=500), policy, check=True
    )
    assert len(run.sessions) == len(work.sessions)
    totals = run.totals
    for one, planned in zip(run.sessions, work.sessions, strict=True):
        assert one.key == planned.key and one.arrival == planned.arrival
        assert len(one.segments) == len(planned.segments)
        assert one.tool_seconds == pytest.approx(planned.tool_seconds)
        assert one.ended == one.segments[-1][2]
        times = [time for segment in one.segments for time in segment]
        assert times == sorted(times) and one.latency > 0
    # Everything is computed once for the first time, whatever happens to it afterwards.
    assert totals.prefill_tokens + totals.decode_tokens == first_computations(work)
    assert totals.recompute_tokens == sum(one.recomputed_tokens for one in run.sessions)
    assert totals.loaded_blocks >= sum(one.loaded_tokens for one in run.sessions) // 16
    assert 0 < totals.used_block_seconds < totals.total_block_seconds
    assert totals.total_block_seconds == pytest.approx(60 * totals.seconds)
    assert totals.stall_seconds <= totals.busy_seconds <= totals.seconds
    if not policy.host:
        assert totals.saved_blocks == totals.loaded_blocks == 0


def test_more_memory_is_not_slower() -> None:
    """The control: what scarcity costs is seen, so that the crowd above is one."""
    work = crowd(0)
    scarce, plenty = (
        simulate(work, machine(blocks=blocks), PRESERVE).totals for blocks in (60, 2000)
    )
    assert scarce.recompute_tokens > 0 == plenty.recompute_tokens
    assert scarce.seconds > plenty.seconds


class Idle(Scheduler):  # type: ignore[misc]
    """Schedules nothing, ever."""

    def schedule(self, throttle_prefills: bool = False) -> Any:
        return SchedulerOutput.make_empty()


def test_a_scheduler_that_stands_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "schedule", Idle.schedule)
    with pytest.raises(RuntimeError, match=r"no progress at second .*'waiting': 1"):
        simulate(workload(session("one", (20, 3))), machine(), STOCK)


def test_a_scheduler_that_only_works_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes the same over and over, and nobody gets anywhere."""
    schedule = Scheduler.schedule

    def forgetful(self: Any, throttle_prefills: bool = False) -> Any:
        for request in self.running:
            request.num_computed_tokens = 0
        return schedule(self, throttle_prefills)

    monkeypatch.setattr(Scheduler, "schedule", forgetful)
    monkeypatch.setattr(engine_core, "MAX_FRUITLESS_STEPS", 50)
    with pytest.raises(RuntimeError, match="no progress"):
        simulate(
            workload(session("one", (200, 3))), machine(), Policy("", "stock", chunk_tokens=32)
        )


def test_lost_blocks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Scheduler.schedule

    def leaky(self: Any, throttle_prefills: bool = False) -> Any:
        self.kv_cache_manager.block_pool.get_new_blocks(1)
        return schedule(self, throttle_prefills)

    monkeypatch.setattr(Scheduler, "schedule", leaky)
    work = workload(session("one", (20, 40)))
    for policy in (STOCK, PRESERVE):
        with pytest.raises(RuntimeError, match="neither free nor held"):
            simulate(work, machine(), policy, check=True)
        assert simulate(work, machine(), policy).sessions[0].ended


def test_lost_requests_are_found() -> None:
    work = workload(session("one", (20, 40)))
    plan = plan_for(work, machine(), STOCK)
    scheduler = build_scheduler(plan, STOCK, Clock(), lambda _: None, Tokens(work))
    scheduler.add_request(Request("lost", [1, 2], SamplingParams(), None))
    check_invariants(scheduler)
    scheduler.waiting.clear()
    with pytest.raises(RuntimeError, match="exactly one queue"):
        check_invariants(scheduler)
