"""Sessions of clients whose tools run elsewhere, and follow-ups that find what was kept of them."""

from typing import Any

from tests.scheduler.invariants import check_all, check_rest, said_as_planned
from tests.scheduler.remains import remains
from tests.scheduler.steering import HERMES, step_until
from tests.scheduler.world import Session, World

TOKENS = 100 + len(HERMES) + 1  # of the prompt and the turn, its end token included


def until_finished(world: World, *sessions: Session) -> None:
    step_until(world, lambda: all(session.finished for session in sessions))
    world.drain()
    world.step()
    world.drain()


def call(world: World, name: str = "a", start: int = 0, text: str = HERMES) -> Session:
    session = world.plain(name, range(start, start + 100), text)
    until_finished(world, session)
    return session


def churn(world: World, times: int = 4) -> None:
    """Others use all blocks that are free, again and again."""
    for index in range(times):
        name = f"churn-{len(world.sessions)}"
        until_finished(world, world.plain(name, range(9000 + 400 * index, 9300 + 400 * index)))


def follow_up(world: World, session: Session, name: str = "b", less: int = 0) -> Session:
    """Send what was said, as far as it is rendered alike, and the result."""
    context = [*session.prompt, *session.parts[0]]
    return world.plain(name, [*context[: len(context) - less], *b"r" * 20], "well")


def first_chunk(world: World, session: Session) -> int:
    """Step until it runs; return how many tokens of it were found."""
    for _ in range(100):
        world.step()
        check_all(world)
        for request in world.last.scheduled_new_reqs:
            if request.req_id == session.request_id:
                return int(request.num_computed_tokens)
    raise AssertionError("not admitted")


def retained(world: World) -> dict[str, Any]:
    paused_kvs = world.scheduler.parts.manager.paused_kvs
    return {kv.key: kv for kv in paused_kvs.values() if kv.pause is None}


def ends_well(world: World) -> None:
    world.run(500)
    world.now += 1000.0
    world.step()
    world.drain()
    said_as_planned(world)
    check_rest(world)
    assert not remains(world.scheduler, world.sessions.keys()), "nothing names those that ended"
