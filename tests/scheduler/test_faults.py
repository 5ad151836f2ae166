"""Tools that hang, clients that vanish, steps that fail.

Once a fault is over, every request that is left finishes with the tokens that it planned, and
every block is free.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caesura.scheduler.vllm.engine.sessions.history_file import HistoryFile

from .invariants import check_all
from .steering import (
    CALL,
    WITH_PIPELINES,
    being_saved,
    evict,
    faulty_world,
    finishes,
    flow,
    load_in_step,
    load_under_way,
    partly_released,
    partly_swapped,
    paused_in_place,
    paused_session,
    queued_for_resume,
    resident_and_queued,
    running,
    step_until,
    swapped,
    until_paused,
)
from .world import Session, World

PAUSED = (paused_in_place, partly_released, being_saved, partly_swapped, swapped)
STATES = (running, *PAUSED, queued_for_resume, resident_and_queued, load_under_way, load_in_step)
Bring = Callable[[World], Session]


@WITH_PIPELINES
@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_client_vanishes(
    asynchronous: bool, depth: int, state: Bring, prefix_caching: bool
) -> None:
    world = faulty_world(asynchronous, depth, prefix_caching=prefix_caching)
    session = state(world)
    neighbour = world.session("b", range(120), "w" * 20 + CALL, "y" * 20, " done")
    world.abort(session)
    for _ in range(5):
        world.step()
        check_all(world)
    flow(world)
    finishes(world)
    assert neighbour.finished


@WITH_PIPELINES
@pytest.mark.parametrize("with_sibling", [False, True])
@pytest.mark.parametrize("prompt", [120, 112], ids=["", "full-blocks"])
@pytest.mark.parametrize("state", PAUSED)
def test_tool_never_returns(
    asynchronous: bool, depth: int, state: Any, prompt: int, with_sibling: bool
) -> None:
    """At the deadline its KV is given up, on the host too; it may resume even so."""
    world = faulty_world(asynchronous, depth)
    if with_sibling:  # whose tool hangs too, and who has the same prefix
        sibling = world.session("b", range(prompt), CALL, "y" * 20, " done")
        until_paused(world, sibling)
    session = state(world, prompt)
    world.now += 501.0
    world.step()
    flow(world)
    for _ in range(5):
        world.step()
        check_all(world)
    world.drain()
    pool = world.scheduler.kv_cache_manager.block_pool
    store = world.scheduler.parts.manager.planner.store
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert store.available == store.slots
    evict(world)
    world.answer(session)
    finishes(world)
    assert session.reports[-1]["resume"]["handling"] != "preserve"


def test_no_deadline_keeps_for_ever() -> None:
    world = faulty_world(pause_deadline=0.0)
    session = paused_session(world)
    world.now += 1e6
    world.step()
    world.answer(session)
    finishes(world)
    assert session.reports[-1]["resume"]["handling"] == "preserve"


# -- the engine -----------------------------------------------------------------------------------


@WITH_PIPELINES
@pytest.mark.parametrize("state", [being_saved, load_under_way, queued_for_resume, partly_swapped])
def test_forward_pass_raises(asynchronous: bool, depth: int, state: Bring, tmp_path: Path) -> None:
    """vLLM ends the engine then; on the way down nothing of ours stands in its way."""
    path = tmp_path / "pauses.json"
    world = faulty_world(asynchronous, depth, pauses=str(path))
    world.answer(paused_session(world, "earlier", 5000))
    step_until(world, lambda: world.sessions["earlier"].finished)
    state(world)
    world.scheduler.schedule()  # whose forward pass raises, so that nothing comes of it
    world.scheduler.shutdown()
    world.scheduler.shutdown()
    known = HistoryFile(str(path)).predictor.to_wire()
    assert known == world.scheduler.parts.sessions.history_file.predictor.to_wire()
    assert known != HistoryFile(None).predictor.to_wire()
