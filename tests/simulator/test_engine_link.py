"""Copies in simulated time: the link by itself, and what it does to steps."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from vllm.v1.kv_offload.base import GPULoadStoreSpec

from caesura.scheduler.vllm.engine.port import EngineState
from caesura.scheduler.vllm.engine.swap.messages import Load, Save, SwapOrders
from caesura.simulator.engine import simulate
from caesura.simulator.engine.layout import lay_out
from caesura.simulator.engine.transfer import Link, OffloadCopies, SwapCopies
from caesura.simulator.latency.machines import MACHINES, make_machine
from caesura.simulator.policy import parse_policy
from caesura.simulator.workload.names import make_workload
from tests.simulator.layered import NAMES, block_bytes
from tests.simulator.simulated import (
    KV_BYTES,
    OFFLOAD,
    OURS,
    SWAP,
    SWAPPED,
    machine,
    session,
    with_settings,
    workload,
)

RATE = 1000.0
"""Blocks a second."""


def put(link: Link, blocks: int, now: float, out: bool = True, urgent: bool = False) -> object:
    return link.put(f"{blocks}", blocks, blocks, now, out=out, urgent=urgent)


def test_copies_take_turns_in_the_order_in_which_they_came() -> None:
    link = Link(RATE, full_duplex=False)
    put(link, 10, 0.0)
    put(link, 20, 0.0, out=False)
    put(link, 30, 0.005)
    assert link.next_end == pytest.approx(0.010)
    assert link.idle_at(0.005) == pytest.approx(0.060)
    assert [copy.order for copy in link.take_done(0.030)] == ["10", "20"]
    assert link.next_end == pytest.approx(0.060)
    assert [copy.order for copy in link.take_done(1.0)] == ["30"]
    assert link.next_end is None and link.idle_at(1.0) == 1.0


def test_full_duplex_carries_both_ways_at_once() -> None:
    link = Link(RATE, full_duplex=True)
    put(link, 10, 0.0)
    put(link, 20, 0.0, out=False)
    put(link, 10, 0.0)
    assert link.idle_at(0.0) == pytest.approx(0.020)
    assert [copy.order for copy in link.take_done(0.015)] == ["10"]
    assert [copy.order for copy in link.take_done(0.0201)] == ["10", "20"]


def test_what_a_step_waits_for_goes_ahead() -> None:
    link = Link(RATE, full_duplex=False)
    save, behind = put(link, 10, 0.0), put(link, 10, 0.0)
    load = put(link, 5, 0.004, out=False, urgent=True)
    more = put(link, 5, 0.004, out=False, urgent=True)
    assert (load.ends, more.ends) == (pytest.approx(0.009), pytest.approx(0.014))
    # 6 ms of the first save were left, and are copied afterwards.
    assert (save.ends, behind.ends) == (pytest.approx(0.020), pytest.approx(0.030))
    later = put(link, 10, 0.008)
    assert (later.begins, later.ends) == (pytest.approx(0.030), pytest.approx(0.040))
    assert [copy.order for copy in link.take_done(0.020)] == ["5", "5", "10"]


def test_an_idle_link_begins_at_once() -> None:
    link = Link(RATE, full_duplex=False)
    put(link, 10, 0.0)
    assert link.take_done(5.0)
    assert put(link, 10, 5.0).ends == pytest.approx(5.010)
    assert Link(float("inf"), full_duplex=False).put("", 7, 7, 1.0, out=True).ends == 1.0


def test_how_much_was_copied_beside_forward_passes() -> None:
    link = Link(RATE, full_duplex=False)
    copy = put(link, 30, 0.010)
    for begins in (0.0, 0.020, 0.035):
        link.forward(begins, begins + 0.012)
    # 2 ms of the first, all 12 of the second, 5 of the third.
    assert link.beside(copy) == pytest.approx(0.019)


def swap_copies(**changes: object) -> SwapCopies:
    policy = replace(SWAP, synchronous_swap=bool(changes.pop("synchronous", False)))
    made = machine(blocks_per_second=RATE, **changes)
    port = cast(EngineState, None)  # it is asked about live requests, and there is none
    return SwapCopies(made, lay_out(made, 2048, caching=True), policy, {}, port)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_takes_the_same_bytes_whichever_group_has_it(name: str) -> None:
    made = MACHINES[name]
    layout = lay_out(made, 8192, caching=True)
    copies = SwapCopies(made, layout, SWAP, {}, cast(EngineState, None))
    copies.begin(save_of(10), 0.0)
    copies.begin(load_of(5, in_step=False), 0.0)
    seconds = 15 * block_bytes(name) / made.link_bytes
    assert copies.link.idle_at(0.0) == pytest.approx(seconds)
    report = copies.report(seconds * 1.001).kv_connector_worker_meta
    assert (report.out.bytes, report.into.bytes) == (10 * block_bytes(name), 5 * block_bytes(name))


def offload_copies() -> OffloadCopies:
    made = machine(blocks_per_second=RATE)
    return OffloadCopies(made, lay_out(made, 2048, caching=True), OFFLOAD, {})


def save_of(blocks: int) -> SwapOrders:
    return SwapOrders(saves=[Save(1, list(range(blocks)), list(range(blocks)))])


def load_of(blocks: int, in_step: bool, last: bool = True) -> SwapOrders:
    slots = list(range(blocks))
    return SwapOrders(loads=[Load("one", slots, slots, in_step=in_step, last=last)])


def test_copies_go_on_beside_and_between_steps() -> None:
    copies = swap_copies()
    copies.begin(save_of(50), 0.0)
    assert copies.step(0.0, 0.030) == (pytest.approx(0.030), 0.0)
    assert copies.report(0.030).kv_connector_worker_meta is None
    report = copies.report(0.060).kv_connector_worker_meta
    assert report.saved == {1: 1}
    # In the planner's own measure: as many tokens as were copied, and how long that took.
    assert (report.out.bytes, report.out.seconds) == (50 * 128, pytest.approx(0.050))
    assert report.out.beside == pytest.approx(0.030)
    ordered = copies.take_ordered()
    assert (ordered.saved, ordered.loaded) == (50, 0)


def test_a_load_that_joins_its_step_holds_it_up() -> None:
    copies = swap_copies()
    copies.begin(load_of(20, in_step=True), 0.0)
    assert copies.step(0.0, 0.030) == (pytest.approx(0.030), 0.0)  # hidden behind its layers
    copies.begin(load_of(50, in_step=True), 0.030)
    assert copies.step(0.030, 0.030) == (pytest.approx(0.080), pytest.approx(0.020))
    output = copies.report(0.080)
    assert output.finished_recving == []
    assert output.kv_connector_worker_meta.into.bytes == 70 * 128
    copies.begin(SwapOrders(), 0.080)
    assert copies.step(0.080, 0.030) == (pytest.approx(0.110), 0.0)


def test_a_load_over_steps_is_there_when_its_last_piece_is() -> None:
    copies = swap_copies()
    copies.begin(load_of(20, in_step=False, last=False), 0.0)
    assert copies.step(0.0, 0.030).ends == pytest.approx(0.030)
    copies.begin(load_of(20, in_step=False), 0.030)
    assert copies.report(0.030).finished_recving == []
    assert copies.report(0.051).finished_recving == ["one"]


def test_a_synchronous_swap_stops_the_engine() -> None:
    copies = swap_copies(synchronous=True)
    copies.begin(save_of(50), 0.0)
    assert copies.step(0.0, 0.030) == (pytest.approx(0.080), pytest.approx(0.050))


@pytest.mark.parametrize(
    ("blocks", "seconds"), [(0, 0.030), (15, 0.030 + 0.005), (45, 0.045), (90, 0.045)]
)
def test_interference_slows_a_step_for_as_long_as_copies_run(blocks: int, seconds: float) -> None:
    """While they do, a step gets on at two thirds of its pace."""
    copies = swap_copies(interference=0.5)
    copies.begin(save_of(blocks) if blocks else SwapOrders(), 0.0)
    assert copies.step(0.0, 0.030).ends == pytest.approx(seconds)


def job(blocks: int, request_id: str = "one") -> SimpleNamespace:
    spec = GPULoadStoreSpec(list(range(blocks)), [blocks], [0])
    return SimpleNamespace(req_id=request_id, src_spec=spec, dst_spec=spec)


def orders(
    stores: dict[int, object], loads: dict[int, object] | None = None, flush: set[int] | None = None
) -> SimpleNamespace:
    return SimpleNamespace(store_jobs=stores, load_jobs=loads or {}, jobs_to_flush=flush or set())


def test_vllms_worker_puts_stores_off_by_a_step() -> None:
    copies = offload_copies()
    copies.begin(orders({1: job(10)}), 0.0)
    assert copies.link.next_end is None
    copies.begin(orders({2: job(10)}, {3: job(20, "two")}), 0.030)
    assert copies.report(0.041).kv_connector_worker_meta.completed_jobs == {1: 1}
    output = copies.report(0.061)
    assert output.finished_recving == ["two"]
    assert output.kv_connector_worker_meta.completed_jobs == {3: 1}
    copies.begin(orders({}), 0.1)
    assert copies.report(0.2).kv_connector_worker_meta.completed_jobs == {2: 1}


def test_vllms_worker_waits_for_stores_whose_blocks_are_needed() -> None:
    copies = offload_copies()
    copies.begin(orders({1: job(10)}), 0.0)
    # The first is submitted anyway; the third is not put off, since this step overwrites it.
    copies.begin(orders({2: job(10), 3: job(10)}, flush={3}), 0.030)
    assert copies.step(0.030, 0.030) == (pytest.approx(0.080), pytest.approx(0.020))
    assert copies.report(0.080).kv_connector_worker_meta.completed_jobs == {1: 1, 3: 1}


def test_what_is_swapped_out_is_loaded_again() -> None:
    run = simulate(SWAPPED, machine(blocks=40), SWAP, check=True)
    one, busy, two = run.sessions
    # 161 and 339 tokens had KV: ten and 21 full blocks. What is behind them is computed again.
    assert (one.loaded_tokens, one.cached_tokens, one.recomputed_tokens) == (160, 160, 1)
    assert (two.loaded_tokens, two.cached_tokens, two.recomputed_tokens) == (336, 336, 3)
    assert (busy.loaded_tokens, busy.recomputed_tokens) == (0, 0)
    assert run.totals.saved_blocks == run.totals.loaded_blocks == 10 + 21
    assert run.totals.recompute_tokens == 4


@pytest.mark.parametrize("in_step", [True, False])
def test_a_resume_takes_as_long_as_the_link(in_step: bool) -> None:
    """Ten blocks are loaded and seven tokens computed, at the same time or one after the other."""

    def waited(blocks_per_second: float, **changes: object) -> float:
        small = machine(blocks=40, blocks_per_second=blocks_per_second)
        run = simulate(SWAPPED, small, replace(SWAP, in_step=in_step, **changes), check=True)
        sent, first, _ = run.sessions[0].segments[1]
        return first - sent

    alone = 0.010 + 0.007
    assert waited(1000, free_link=True) == pytest.approx(alone, abs=0.0011)
    assert waited(1e6) == pytest.approx(alone, abs=0.0011)
    assert waited(200) == pytest.approx(0.050 + (0.0 if in_step else alone), abs=0.0011)


def test_vllms_own_offloading_loads_what_was_evicted() -> None:
    run = simulate(SWAPPED, machine(blocks=30), OFFLOAD, check=True)
    one = run.sessions[0]
    assert 0 < one.loaded_tokens <= one.cached_tokens == 160
    assert run.totals.saved_blocks == 10 + 21  # by default only blocks of prompts are kept
    without = simulate(SWAPPED, machine(blocks=30), replace(OFFLOAD, host=False), check=True)
    assert without.sessions[0].loaded_tokens == 0
    assert without.sessions[0].recomputed_tokens == 1 + one.loaded_tokens


def test_the_scheduler_learns_the_links_rate() -> None:
    """Told that the link is ten times as fast as it is, it finds out."""
    sessions = [
        session(f"{index}", (160, 2, 5.0), (5, 2), arrival=index * 1.0) for index in range(40)
    ]
    made = machine(blocks=60, blocks_per_second=500)
    wrong = replace(made.cost, out_rate=80_000.0, in_rate=80_000.0)
    learned = []
    for cost in (made.cost, wrong):
        run = simulate(
            workload(*sessions), replace(made, cost=cost), with_settings(OURS), records=True
        )
        steps = [record for record in run.records if record["kind"] == "steps"]
        learned.append(steps[-1]["budget_blocks"][-1])
    assert made.link_bytes / KV_BYTES == 8000
    assert learned[1] < 3 * learned[0]


def test_pauses_and_steps_are_recorded_in_virtual_time() -> None:
    run = simulate(SWAPPED, machine(blocks=40), SWAP, records=True)
    pauses = [record for record in run.records if record["kind"] == "pause"]
    assert [round(pause["pause_seconds"], 6) for pause in pauses] == [5.0, 60.0]
    assert all(0 < pause["at"] < 70 for pause in pauses)
    seconds = [s for record in run.records if record["kind"] == "steps" for s in record["seconds"]]
    assert sum(seconds) == pytest.approx(run.totals.busy_seconds)
    assert simulate(SWAPPED, machine(blocks=40), SWAP).records == []


def test_no_more_is_swapped_where_copies_cost_the_steps_more_than_recomputing() -> None:
    sessions = make_workload("mix", seed=3, rate=2.0, seconds=20.0)
    policy = parse_policy("caesura")
    free, dear = (
        simulate(sessions, make_machine(f"gptj-6b-a100-40g:link=5,interference={share}"), policy)
        for share in (0, 2)
    )
    assert free.totals.saved_blocks > 0
    # What is saved first measures what it costs; probes go on.
    assert dear.totals.saved_blocks < free.totals.saved_blocks / 4
