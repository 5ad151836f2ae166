"""Random clients, who come, let tools return, and leave."""

import random
from typing import Any

from tests.scheduler.invariants import check_all, check_rest, said_as_planned
from tests.scheduler.world import World

CALL = "sum [calc(1+2) ->"


def random_session(world: World, rng: random.Random, index: int) -> None:
    if rng.random() < 0.3:
        tokens = range(index * 3, index * 3 + rng.randint(1, 150))
        world.plain(f"plain-{index}", tokens, "z" * rng.randint(0, 40))
        return
    shared = rng.choice([0, 1000])
    tokens = range(shared, shared + rng.randint(1, 120))
    texts: list[str] = []
    for _ in range(rng.randint(0, 3)):
        texts += [("w" * rng.randint(0, 30)) + CALL, "r" * rng.randint(1, 60) + "]"]
    world.session(f"session-{index}", tokens, *texts, "done")


def clients_act(world: World, rng: random.Random, index: int) -> None:
    """Let a client come, make a step, and let tools return and clients leave."""
    if rng.random() < 0.25:
        random_session(world, rng, index)
    world.step()
    for session in world.sessions.values():
        if session.paused and not session.finished and rng.random() < 0.2:
            world.answer(session)
        elif not session.finished and rng.random() < 0.005:
            world.abort(session)


def clients_come_and_go(world: World, rng: random.Random, steps: int) -> None:
    """Let clients act for so many steps and then finish; check all invariants on the way."""
    for index in range(steps):
        clients_act(world, rng, index)
        check_all(world)
    world.run(3000)
    world.step()
    check_rest(world)
    all_is_told_and_nothing_left(world)


def all_is_told_and_nothing_left(world: World) -> None:
    scheduler = world.scheduler
    assert scheduler.requests == {}
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not scheduler.parts.served.paused
    for session in world.sessions.values():
        if session.reports and session.reports[-1].get("verdict") == "end":
            decoded = [token for part in session.parts[::2] for token in part]
            assert session.delivered == decoded


def converse(world: World) -> None:
    """Let six sessions pause twice each, side by side, at all places of a block."""
    for number in range(6):
        prompt = [40 + (number * 7 + place) % 60 for place in range(30 + 3 * number)]
        texts = ("x" * number + CALL, " 3 and", "y [calc(2+2) ->", " 4 so", "done.")
        world.session(f"s{number}", prompt, *texts)
    for _ in range(400):
        world.step()
        check_all(world)
        for session in world.sessions.values():
            if session.paused and not session.finished:
                world.answer(session)
        if all(session.finished for session in world.sessions.values()):
            break
    world.run()
    said_as_planned(world)
    check_rest(world)


def resumes(world: World) -> list[dict[str, Any]]:
    reports = [report for one in world.sessions.values() for report in one.reports]
    return [report["resume"] for report in reports if report.get("resume")]
