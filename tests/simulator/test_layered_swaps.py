"""Swaps on machines of models whose layers differ, against the models' public configurations."""

from dataclasses import replace
from typing import Any

import pytest
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import RequestStatus

from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.simulator.engine import simulate
from caesura.simulator.engine.layout import lay_out
from caesura.simulator.engine.run import Member, Prepared, prepare
from caesura.simulator.engine.transfer import Link
from caesura.simulator.latency.machines import MACHINES
from caesura.simulator.machine import Machine
from caesura.simulator.policy import POLICIES, Policy
from tests.scheduler.invariants import check_blocks, check_copies, check_store

from .layered import NAMES, kept_bytes
from .simulated import SWAP, crowd, first_computations, session, workload

TOKENS = 5000
"""More than a block of any of the machines, and more than any window."""
LONG = workload(session("one", (TOKENS - 19, 20, 5.0), (5, 2)), session("busy", (10, 400)))
"""One is paused with just so many tokens computed, while the other keeps the engine stepping."""
CACHED = replace(SWAP, prefix_caching=True)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> dict[bool, int]:
    """The bytes that the link was given, out (True) and in."""
    total = {True: 0, False: 0}
    put = Link.put

    def counted(self: Link, order: Any, blocks: int, size: int, now: float, **how: Any) -> Any:
        total[how["out"]] += size
        return put(self, order, blocks, size, now, **how)

    monkeypatch.setattr(Link, "put", counted)
    return total


@pytest.mark.parametrize("name", NAMES)
def test_a_swap_moves_what_the_model_needs_and_no_more(name: str, copied: dict[bool, int]) -> None:
    run = simulate(LONG, MACHINES[name], SWAP, check=True)
    one, _ = run.sessions
    assert copied == {True: kept_bytes(name, TOKENS), False: kept_bytes(name, TOKENS)}
    assert (one.loaded_tokens, one.cached_tokens, one.recomputed_tokens) == (TOKENS, TOKENS, 0)
    assert run.totals.recompute_tokens == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_the_prefix_cache_still_has_is_not_loaded(name: str, copied: dict[bool, int]) -> None:
    run = simulate(LONG, MACHINES[name], CACHED, check=True)
    assert copied[True] == kept_bytes(name, TOKENS)
    assert 0 < copied[False] < copied[True]
    assert (run.sessions[0].cached_tokens, run.totals.recompute_tokens) == (TOKENS, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_later_pause_copies_what_has_grown(name: str, copied: dict[bool, int]) -> None:
    """Full blocks of attention keep their copies; windows move on, and states change."""
    grown = 2 * MACHINES[name].block_tokens
    twice = workload(
        session("one", (TOKENS - 19, 20, 5.0), (grown - 20, 20, 5.0), (5, 2)),
        session("busy", (10, 400)),
        session("later", (10, 400), arrival=5.1),
    )
    run = simulate(twice, MACHINES[name], CACHED, check=True)
    first, second = kept_bytes(name, TOKENS), kept_bytes(name, TOKENS + grown)
    assert second < copied[True] < first + second
    assert run.totals.recompute_tokens == 0


# -- nothing is lost ------------------------------------------------------------------------------


def small(name: str, host_blocks: int) -> Machine:
    """A machine with room for three long requests, and so many blocks of host memory."""
    made = MACHINES[name]
    layout = lay_out(made, 2048, caching=True)
    blocks = layout.blocks_of(2048, 2048) * 3
    host = host_blocks * layout.block_bytes
    return replace(made, kv_tokens=blocks * made.block_tokens, host_bytes=host)


def checked_until(prepared: Prepared, second: float) -> None:
    """Run to a second, and look twice a second whether blocks and copies are accounted for."""
    scheduler, now = prepared.scheduler, prepared.core.now
    while now < second:
        now += 0.5
        prepared.core.run(now)
        check_blocks(scheduler)
        check_store(scheduler)
        check_copies(scheduler)


def policy(handling: str, caching: bool) -> Policy:
    made = SWAP if handling == "swap" else POLICIES[handling]
    return replace(made, prefix_caching=caching)


@pytest.mark.parametrize(
    ("handling", "caching"), [("swap", True), ("swap", False), ("fcfs", True), ("infercept", False)]
)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_where_memory_is_short(name: str, handling: str, caching: bool) -> None:
    work = crowd(0, 12)
    prepared = prepare(Member(work, small(name, 40), policy(handling, caching)), check=True)
    checked_until(prepared, 6.0)
    run = prepared.run()
    assert isinstance(prepared.scheduler, PausingScheduler)
    totals, planner = run.totals, prepared.scheduler.parts.manager.planner
    assert [one.key for one in run.sessions if one.ended] == [one.key for one in work.sessions]
    assert totals.prefill_tokens + totals.decode_tokens == first_computations(work)
    assert totals.recompute_tokens == sum(one.recomputed_tokens for one in run.sessions)
    assert planner is not None and planner.store.slots == 40 == planner.store.available
    if handling == "swap":
        assert totals.saved_blocks > 0 and totals.loaded_blocks > 0


@pytest.mark.parametrize("second", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", NAMES)
def test_sessions_that_are_aborted_free_all(name: str, second: float) -> None:
    prepared = prepare(Member(crowd(1), small(name, 40), CACHED), check=True)
    checked_until(prepared, second)
    scheduler, copies = prepared.scheduler, prepared.core._copies
    assert isinstance(scheduler, PausingScheduler) and copies is not None
    planner = scheduler.parts.manager.planner
    assert planner is not None
    scheduler.finish_requests(list(scheduler.requests), RequestStatus.FINISHED_ABORTED)
    now = prepared.core.now
    while planner.busy:  # blocks stay until their copies have ended
        output = scheduler.schedule()
        copies.begin(output.kv_connector_metadata, now)
        now += 1.0
        nothing = ModelRunnerOutput([], {}, kv_connector_output=copies.report(now))
        scheduler.update_from_output(output, nothing)
        check_blocks(scheduler)
        check_store(scheduler)
    assert scheduler.parts.port.blocks.free() == scheduler.parts.port.blocks.total
    assert planner.store.available == 40
