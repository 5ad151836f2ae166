"""Bringing a world into the situation that a test is about."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from vllm.v1.request import RequestStatus

from caesura.intercept.kv.handling import oldest_largest_first
from caesura.intercept.kv.views import Action, Decision, PausedKVView, StepView
from tests.scheduler.invariants import check_all, check_rest, said_as_planned
from tests.scheduler.world import Session, World, make_scheduler

CALL = "sum [calc(1+2) ->"
MODES = [
    pytest.param(False, 0, id="sync"),
    pytest.param(True, 0, id="async-0"),
    pytest.param(True, 1, id="async-1"),
    pytest.param(True, 3, id="async-3"),
]
PIPELINES = [
    pytest.param(False, 1, id="pipeline-2"),
    pytest.param(False, 3, id="pipeline-4"),
]
IN_EVERY_MODE = pytest.mark.parametrize(("asynchronous", "depth"), MODES)
WITH_PIPELINES = pytest.mark.parametrize(("asynchronous", "depth"), [*MODES, *PIPELINES])


class Chosen:
    """A handling that does to each request what the test has chosen; the others are preserved."""

    name = "chosen"
    write_behind = False
    every_step = True

    def __init__(self, **actions: Action) -> None:
        self.actions = dict(actions)

    def decide(self, paused: Sequence[PausedKVView], step: StepView) -> list[Decision]:
        return [
            Decision(one.key, self.actions[one.key])
            for one in paused
            if one.key in self.actions and not one.returned
        ]

    def victims(
        self, paused: Sequence[PausedKVView], step: StepView, needed: int, forced: bool
    ) -> list[tuple[str, int]]:
        return oldest_largest_first(paused, needed, forced)


def choose(world: World, **actions: Action) -> None:
    """From now on, this happens to the paused KV of these requests."""
    world.scheduler.parts.manager.handling = Chosen(**actions)


def step_until(world: World, there: Callable[[], Any], steps: int = 1200) -> None:
    for _ in range(steps):
        if there():
            return
        world.step()
        check_all(world)
    raise AssertionError("never came about")


def until_paused(world: World, *sessions: Session) -> None:
    step_until(world, lambda: all(session.paused for session in sessions))
    world.drain()


def swap_out(world: World, *sessions: Session) -> None:
    """Have all full blocks of paused sessions copied and released; nothing of them can be found."""
    manager = world.scheduler.parts.manager
    paused_kvs = [manager.paused_kvs[session.request_id] for session in sessions]
    choose(world, **{session.request_id: "swap" for session in sessions})
    step_until(world, lambda: not any(manager.paused_kvs.blocks.of(one) for one in paused_kvs))
    step_until(world, lambda: not manager.planner.busy)
    evict(world)
    choose(world)


def evict(world: World) -> None:
    """Others have used all blocks that are free: the prefix cache finds nothing in them."""
    pool = world.scheduler.kv_cache_manager.block_pool
    pool.evict_blocks({b.block_id for b in pool.free_block_queue.get_all_free_blocks()})


def loading(world: World, session: Session) -> bool:
    request = world.scheduler.requests.get(session.request_id)
    return request is not None and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS


def stall(world: World) -> None:
    """The link does nothing from now on."""
    world.link.pace = lambda: -1


def flow(world: World, blocks: int = 1000) -> None:
    """The link goes on."""
    world.link.pace = lambda: blocks


def stateful(depth: int, cached: bool, **options: Any) -> World:
    """Return a world of a model with recurrent state and full attention."""
    return World(make_scheduler(layout="state+full", prefix_caching=cached, **options), depth)


def faulty_world(asynchronous: bool = False, depth: int = 0, **options: Any) -> World:
    given = {"blocks": 40, "max_model_len": 320, "host_blocks": 100, "pause_deadline": 500.0}
    given["stages"] = 1 if asynchronous else depth + 1
    return World(make_scheduler(asynchronous=asynchronous, **{**given, **options}), depth)


def finishes(world: World) -> None:
    for _ in range(600):
        if all(session.finished for session in world.sessions.values()):
            break
        world.step()
        check_all(world)
        for session in world.sessions.values():
            if session.paused and not session.finished:
                world.answer(session)
    world.run(600)
    world.step()
    world.drain()
    said_as_planned(world)
    check_rest(world)


def paused_session(world: World, name: str = "a", start: int = 0, prompt: int = 120) -> Session:
    session = world.session(name, range(start, start + prompt), CALL, "x" * 30, " done")
    until_paused(world, session)
    return session


def running(world: World) -> Session:
    session = world.session("a", range(120), CALL, "x" * 30, " done")
    for _ in range(4):
        world.step()
    return session


def paused_in_place(world: World, prompt: int = 120) -> Session:
    return paused_session(world, prompt=prompt)


def partly_released(world: World, prompt: int = 120) -> Session:
    session = paused_session(world, prompt=prompt)
    manager = world.scheduler.parts.manager
    manager.release(manager.paused_kvs["a"], 3, world.now, "decided")
    return session


def being_saved(world: World, prompt: int = 120) -> Session:
    session = paused_session(world, prompt=prompt)
    stall(world)
    choose(world, a="swap")
    step_until(world, lambda: world.scheduler.parts.manager.planner.busy)
    return session


def partly_swapped(world: World, prompt: int = 120) -> Session:
    session = paused_session(world, prompt=prompt)
    world.scheduler.parts.manager.views.link_blocks = lambda: 2
    choose(world, a="swap")
    step_until(world, lambda: world.scheduler.parts.manager.planner.store.confirmed)
    world.step()
    return session


def swapped(world: World, prompt: int = 120) -> Session:
    session = paused_session(world, prompt=prompt)
    swap_out(world, session)
    return session


def queued_for_resume(world: World) -> Session:
    session = swapped(world)
    world.answer(session)
    return session


def resident_and_queued(world: World) -> Session:
    session = paused_session(world)
    world.answer(session)
    return session


def load_under_way(world: World) -> Session:
    session = swapped(world)
    world.scheduler.parts.manager.planner.loads.in_step = False
    stall(world)
    world.answer(session)
    step_until(world, lambda: loading(world, session))
    world.step()
    return session


def load_in_step(world: World) -> Session:
    session = swapped(world)
    world.answer(session)
    world.step()
    return session


HERMES = '<tool_call>{"name": "calc", "arguments": {}}</tool_call>'
