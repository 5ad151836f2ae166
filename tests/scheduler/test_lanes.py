"""Lanes tell where each request is, from its arrival to its end, and why it was left waiting.

That they agree with the scheduler in everything that may happen is seen in `invariants.check_all`,
which the random worlds ask after each step; here are the stories.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from caesura.intercept.calls.formats import resolve
from caesura.intercept.kv.handling import make_handling
from caesura.scheduler.vllm.engine.export import request_states
from tests.scheduler.clients import random_session
from tests.scheduler.steering import (
    CALL,
    HERMES,
    IN_EVERY_MODE,
    choose,
    evict,
    faulty_world,
    paused_session,
    step_until,
)

from . import steering
from .invariants import check_all
from .lanes import rows_of, states
from .link import random_pace
from .whims import Whims
from .world import Session, World

SITUATIONS = [
    steering.running,
    steering.paused_in_place,
    steering.partly_released,
    steering.being_saved,
    steering.partly_swapped,
    steering.swapped,
    steering.queued_for_resume,
    steering.resident_and_queued,
    steering.load_under_way,
    steering.load_in_step,
]


def of(world: World, kind: str) -> list[dict[str, Any]]:
    return [record for record in world.records if record["kind"] == kind]


def ends(world: World) -> None:
    """Run to the end, with a look after each step, until all records have left."""
    steering.flow(world)
    steering.finishes(world)
    while world.scheduler.has_requests():
        world.step()
        world.drain()


def test_many_requests_at_once_are_told_in_records_of_a_bearable_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_states, "ROWS_PER_RECORD", 7)
    world = faulty_world()
    for number in range(20):
        world.session(f"s{number}", range(100 * number, 100 * number + 40), "y" * 4)
    ends(world)
    told = [len(record["at"]) for record in of(world, "lanes")]
    assert max(told) == 7 and told.count(7) > 2
    for number in range(20):
        assert states(world.records, f"s{number}")[-1] == "ended"


@IN_EVERY_MODE
def test_a_pause_that_is_kept(asynchronous: bool, depth: int) -> None:
    world = faulty_world(asynchronous, depth)
    paused_session(world)
    ends(world)
    expected = ["waiting", "prefill", "decode", "paused", "waiting", "prefill", "decode", "ended"]
    assert states(world.records, "a") == expected
    (row,) = [row for one in of(world, "lanes") for row in rows_of(one) if row.state in ("paused",)]
    (opening,), (pause,) = of(world, "opening"), of(world, "pause")
    assert (row.blocks, row.at) == (opening["blocks"], opening["at"]) == (9, pause["at"])
    for name in ("request", "session", "tool", "prices", "context_tokens", "predicted_seconds"):
        assert opening[name] == pause[name]
    assert opening["inputs"]["resident"] == 9
    assert not opening["person"]


@pytest.mark.parametrize("in_step", [True, False])
def test_a_pause_that_is_swapped(in_step: bool) -> None:
    world = faulty_world(in_step=in_step)
    session = paused_session(world)
    steering.swap_out(world, session)
    world.answer(session)
    ends(world)
    back = states(world.records, "a")[3:]
    loads = [] if in_step else ["loading"]
    assert back == ["paused", "offloaded", "waiting", *loads, "recompute", "decode", "ended"]
    (pause,) = of(world, "pause")
    assert {(row[1], row[3]) for row in pause["decisions"]} == {("swap", "decided")}
    hosted = [row.host for one in of(world, "lanes") for row in rows_of(one)]
    assert max(hosted) == 8


def test_a_pause_that_is_discarded() -> None:
    world = faulty_world(max_num_batched_tokens=136, chunk="vllm")
    session = paused_session(world)
    choose(world, a="discard")
    world.step()
    evict(world)
    world.answer(session)
    ends(world)
    back = states(world.records, "a")[3:]
    assert back == ["paused", "dropped", "waiting", "recompute", "prefill", "decode", "ended"]


def test_a_preempted_request_recomputes_what_it_had_computed() -> None:
    world = faulty_world(blocks=20, host_blocks=100)
    for name, start in (("a", 0), ("b", 1000)):
        world.session(name, range(start, start + 100), "y" * 120)
    ends(world)
    expected = ["waiting", "prefill", "decode", "waiting", "recompute", "decode", "ended"]
    assert states(world.records, "b") == expected
    (wait,) = of(world, "wait")
    assert (wait["request"], wait["after"]) == ("b", "preempted")
    assert wait["lacked"] == {"blocks": wait["steps"]}
    assert wait["needed_blocks"] > wait["free_blocks"]


@pytest.mark.parametrize("bring_about", SITUATIONS)
def test_an_abort_ends_the_lane(bring_about: Callable[[World], Session]) -> None:
    world = faulty_world()
    session = bring_about(world)
    check_all(world)
    world.abort(session)
    check_all(world)
    ends(world)
    assert states(world.records, "a")[-1] == "ended"


def test_what_happens_while_nothing_runs_is_told_at_once() -> None:
    world = faulty_world()
    session = paused_session(world)
    while world.scheduler.has_requests() and world.scheduler.connector.outbox:
        world.step()
    assert states(world.records, "a")[-1] == "paused"
    world.abort(session)
    assert world.scheduler.has_requests(), "the engine goes on until it is told"
    world.step()
    assert states(world.records, "a")[-1] == "ended"


def test_kv_that_is_kept_for_a_follow_up_has_a_lane_until_that_comes() -> None:
    world = faulty_world(formats=resolve(("hermes",), ()))
    world.plain("a", range(100), HERMES)
    step_until(world, lambda: "a" in world.scheduler.parts.manager.paused_kvs)
    context = [*range(100), *world.sessions["a"].parts[0]]
    busy = world.session("busy", range(5000, 5100), "y" * 100)
    world.plain("b", [*context, *b"r" * 20], "well")
    check_all(world)
    ends(world)
    assert busy.finished
    assert states(world.records, "a") == ["waiting", "prefill", "decode", "paused", "ended"]
    assert states(world.records, "b") == ["waiting", "prefill", "decode", "ended"]
    rows = [row for one in of(world, "lanes") for row in rows_of(one) if row.request == "b"]
    assert rows[0].blocks > 0, "what was kept is its own now"


def test_a_follow_up_recomputes_what_its_session_had_computed() -> None:
    world = faulty_world(retention=1000.0, formats=resolve(("hermes",), ()))
    world.plain("a", range(100), HERMES)
    step_until(world, lambda: "a" in world.scheduler.parts.manager.paused_kvs)
    world.plain("b", [*range(100), *world.sessions["a"].parts[0], *b"r" * 20], "well")
    world.drop_kv("a")
    evict(world)
    ends(world)
    assert "recompute" in states(world.records, "b")
    (pause,) = of(world, "pause")
    assert pause["outcome"] == "followed"


def test_what_a_follow_up_computes_again_is_told_by_the_pause_before_it() -> None:
    world = faulty_world(retention=1000.0, formats=resolve(("hermes",), ()))
    world.plain("a", range(100), HERMES)
    manager = world.scheduler.parts.manager
    step_until(world, lambda: "a" in manager.paused_kvs)
    manager.release(manager.paused_kvs["a"], 3, world.now, "running")
    evict(world)
    world.plain("b", [*range(100), *world.sessions["a"].parts[0], *b"r" * 20], "well")
    ends(world)
    (pause,) = of(world, "pause")
    assert (pause["outcome"], pause["recomputed_tokens"]) == ("followed", 3 * 16)
    assert pause["regret"] == pause["cost"] > 0, "nobody else wanted the memory"


# -- why blocks were given up -------------------------------------------------------------------


def reasons(world: World) -> set[str]:
    return {row[3] for pause in of(world, "pause") for row in pause["decisions"]}


def test_blocks_that_running_requests_need() -> None:
    world = faulty_world(blocks=20)
    world.scheduler.parts.manager.handling = make_handling("preserve")
    paused_session(world)
    world.plain("b", range(3000, 3120), "y" * 150)
    step_until(world, lambda: world.sessions["b"].finished)
    ends(world)
    assert reasons(world) == {"running"}


def test_blocks_that_admit_somebody() -> None:
    world = faulty_world(blocks=20)
    paused_session(world)
    world.plain("b", range(3000, 3250), "y")
    step_until(world, lambda: world.sessions["b"].finished)
    ends(world)
    assert reasons(world) == {"admit"}


def test_a_deadline_and_a_reset() -> None:
    world = faulty_world()
    late, reset = paused_session(world), paused_session(world, "b", 1000)
    world.now += 400.0
    third = paused_session(world, "c", 2000)
    world.now += 200.0
    world.step()
    world.scheduler.reset_prefix_cache()
    for session in (late, reset, third):
        world.answer(session)
    ends(world)
    by_request = {pause["request"]: pause["decisions"] for pause in of(world, "pause")}
    assert [row[3] for row in by_request["a"]] == ["deadline"]
    assert [row[3] for row in by_request["c"]] == ["reset"]


# -- what the prefix cache still has ---------------------------------------------------------------


@IN_EVERY_MODE
@pytest.mark.parametrize("seed", range(4))
def test_cached_blocks_are_never_too_many_and_hardly_too_few(
    asynchronous: bool, depth: int, seed: int
) -> None:
    """Against a walk over all free blocks, in each step."""
    rng = random.Random(seed)
    world = faulty_world(asynchronous, depth, blocks=rng.choice([40, 80]))
    scheduler, recorder = world.scheduler, world.scheduler.parts.recorder
    scheduler.parts.manager.handling = Whims(rng)
    world.link.pace = random_pace(rng)
    manager, seen = scheduler.kv_cache_manager, []
    pool, estimate = manager.block_pool, recorder.cached_blocks

    def compared(free: int, partial: int) -> int:
        told = estimate(free, partial)
        hashed = [block for block in pool.blocks if block.block_hash is not None]
        exact = sum(not block.ref_cnt for block in hashed)
        twice = len(hashed) - len(pool.cached_block_hash_to_block)
        # In flight: a last token that is not known yet, blocks that may not be reused yet, and
        # loads that are done and not looked at.
        late = [r for r in scheduler.requests.values() if r.status == WAITS]
        in_flight = sum(
            len(scheduler.kv_cache_manager.get_block_ids(r.request_id)[0]) for r in late
        )
        in_flight += sum(len(blocks) for _, blocks in scheduler.deferred_frees)
        in_flight += len(scheduler.requests) if world.depth else 0
        assert exact - twice - in_flight <= told <= exact
        seen.append(exact)
        return told

    recorder.cached_blocks = compared
    for index in range(120):
        if rng.random() < 0.25:
            random_session(world, rng, index)
        world.step()
        for session in world.sessions.values():
            if session.paused and not session.finished and rng.random() < 0.1:
                world.answer(session)
    assert max(seen) > 3


WAITS = RequestStatus.WAITING_FOR_REMOTE_KVS


def test_a_session_of_vllms_own_has_a_lane_too() -> None:
    world = faulty_world()
    session = world.session("a", range(40), "hello", "x" * 10, "bye", watched=False)
    for _ in range(30):
        world.step()
        check_all(world)
        if session.delivered and session.delivered[-1] == 0:
            break
    world.abort(session)
    ends(world)
    assert states(world.records, "a")[-1] == "ended"
    assert CALL not in str(world.records)
