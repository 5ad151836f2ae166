"""An engine that sleeps with requests loses its KV cache, and the copies on the host with it.

Requests that were paused, running or waiting then resume by recomputation, and decode what they
would have decoded.
"""

from types import SimpleNamespace

import pytest
from vllm.v1.request import RequestStatus

from caesura.scheduler.vllm.engine.connector import CaesuraConnector

from .invariants import check_all, check_rest
from .steering import (
    CALL,
    IN_EVERY_MODE,
    being_saved,
    choose,
    faulty_world,
    finishes,
    flow,
    loading,
    paused_session,
    stall,
    step_until,
    swap_out,
)


@IN_EVERY_MODE
@pytest.mark.parametrize("swapped", [False, True])
def test_a_paused_session_is_recomputed_after_a_sleep(
    asynchronous: bool, depth: int, swapped: bool
) -> None:
    """Neither its blocks on the device nor its copies on the host are used again."""
    world = faulty_world(asynchronous, depth)
    session = paused_session(world)
    if swapped:
        swap_out(world, session)
    world.sleep()
    assert not world.parts.manager.planner.store.used
    world.wake_up()
    world.answer(session)
    finishes(world)
    assert world.computed_again["a"] >= 120
    assert world.link.loaded == 0


@IN_EVERY_MODE
@pytest.mark.parametrize("swapped", [False, True])
def test_no_kv_from_before_an_abort_of_all_is_used(
    asynchronous: bool, depth: int, swapped: bool
) -> None:
    """Its weights may be others. The same tokens come again, as after vLLM's `/pause`."""
    world = faulty_world(asynchronous, depth)
    session = paused_session(world)
    other = world.session("b", range(300, 420), "x" * 60)
    if swapped:
        swap_out(world, session)
    world.step()
    for one in (session, other):
        one.finished = True
    world.aborted.update(("a", "b"))
    world.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    world.sleep_when_drained()
    check_rest(world)
    world.wake_up()
    tokens = [*session.prompt, *CALL.encode(), *b" 3]"]
    again = world.session("again", tokens, " done")
    finishes(world)
    assert again.delivered and world.link.loaded == 0
    assert world._reached["again"] >= len(tokens)


@IN_EVERY_MODE
def test_running_and_waiting_requests_go_on_after_a_sleep(asynchronous: bool, depth: int) -> None:
    world = faulty_world(asynchronous, depth, blocks=24)
    for name, start in (("a", 0), ("b", 1000), ("c", 2000)):
        world.session(name, range(start, start + 120), CALL, "x" * 30, " done")
    for _ in range(4):
        world.step()
    world.sleep()
    check_all(world)
    world.wake_up()
    finishes(world)


@IN_EVERY_MODE
def test_a_sleep_waits_for_copies_to_the_host(asynchronous: bool, depth: int) -> None:
    """No copy may read memory that is gone, and none of them is trusted afterwards."""
    world = faulty_world(asynchronous, depth)
    session = being_saved(world)
    assert world.link.saved == 0
    flow(world, 2)
    world.sleep()
    assert world.link.saved > 0
    assert not world.parts.manager.planner.busy
    world.wake_up()
    choose(world)
    world.answer(session)
    finishes(world)
    assert world.link.loaded == 0


@IN_EVERY_MODE
def test_a_sleep_during_a_load_is_refused_and_harms_no_request(
    asynchronous: bool, depth: int
) -> None:
    """vLLM cannot take back blocks into which a connector loads: it says so and stays awake."""
    world = faulty_world(asynchronous, depth, in_step=False)
    session = paused_session(world)
    swap_out(world, session)
    stall(world)
    world.answer(session)
    step_until(world, lambda: loading(world, session))
    flow(world, 2)
    with pytest.raises(RuntimeError, match="remote KV transfer"):
        world.sleep()
    world.wake_up()
    finishes(world)


@IN_EVERY_MODE
def test_a_sleep_that_waits_is_granted_during_a_load(asynchronous: bool, depth: int) -> None:
    """In the mode `wait`, what loads goes on to its end or next pause, and then holds nothing."""
    world = faulty_world(asynchronous, depth, in_step=False)
    session, other = paused_session(world), world.session("b", range(500, 560), CALL, "r", "d")
    swap_out(world, session)
    step_until(world, lambda: other.paused)
    stall(world)
    world.answer(session)
    step_until(world, lambda: loading(world, session))
    flow(world, 2)
    world.sleep_when_drained()
    world.wake_up()
    assert session.finished and other.paused
    world.answer(other)
    finishes(world)


@pytest.mark.parametrize(("host_gib", "supported"), [(0, True), (4, False), (None, False)])
def test_sleep_is_declared_as_supported_only_without_copies(
    host_gib: float | None, supported: bool
) -> None:
    """vLLM 0.33 asks before it starts an engine with sleep mode and a connector."""
    extra = {} if host_gib is None else {"host_gib": host_gib}
    config = SimpleNamespace(kv_connector_extra_config=extra)
    assert CaesuraConnector.supports_sleep_mode(config) is supported
