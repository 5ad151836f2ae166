"""What the scheduler makes of a forecast for a single call, which comes while it is paused."""

from typing import Any

import pytest

from .steering import CALL, until_paused
from .world import Session, World, make_scheduler


def paused(world: World, name: str, start: int) -> Session:
    session = world.session(name, range(start, start + 200), CALL, " 3]", " done")
    until_paused(world, session)
    return session


def expect(world: World, request: Any, seconds: Any) -> dict[str, Any]:
    message = {"command": "expect_pause", "request": request, "seconds": seconds}
    return world.parts.commands.run(message)


def resident(world: World, name: str) -> int:
    kv = world.parts.manager.paused_kvs[name]
    return len(world.parts.manager.paused_kvs.blocks.of(kv))


@pytest.mark.parametrize("long_first", [True, False])
def test_the_call_with_the_longer_forecast_gives_up_its_kv_first(long_first: bool) -> None:
    """Both wait for the same tool, so nothing that was learned tells them apart."""
    world = World(make_scheduler(blocks=40))
    names = ["long", "short"] if long_first else ["short", "long"]
    for place, name in enumerate(names):
        paused(world, name, 1000 * place)
    assert expect(world, "long", 600.0) == {"taken": True}
    assert expect(world, "short", 0.01) == {"taken": True}
    before = resident(world, "short")
    world.plain("large", range(5000, 5000 + 260))
    for _ in range(6):
        world.step()
    assert resident(world, "long") < before
    assert resident(world, "short") == before


def test_a_forecast_is_of_this_pause_alone() -> None:
    world = World(make_scheduler())
    session = paused(world, "a", 0)
    paused(world, "b", 1000)
    kvs = world.parts.manager.paused_kvs
    other = kvs["b"].durations
    began = kvs["a"].since
    world.now = began + 2.0
    expect(world, "a", 30.0)
    assert kvs["a"].remaining(began) == pytest.approx(32.0)
    assert kvs["b"].durations is other
    world.now = began + 32.0
    world.answer(session)
    trust = world.parts.sessions.trust_for("calc")
    assert trust.compared == 1
    assert trust.forecast_error == pytest.approx(0.0, abs=1e-9)
    assert trust.learned_error > 1.0


def test_the_first_forecast_of_a_pause_is_compared_and_the_last_one_used() -> None:
    world = World(make_scheduler())
    session = paused(world, "a", 0)
    kv = world.parts.manager.paused_kvs["a"]
    expect(world, "a", 10.0)
    expect(world, "a", 40.0)
    assert kv.remaining(kv.since) == pytest.approx(40.0 + world.now - kv.since)
    world.now = kv.since + 40.0
    world.answer(session)
    assert world.parts.sessions.trust_for("calc").forecast_error == pytest.approx(30.0, rel=0.01)


def test_without_a_forecast_nothing_is_compared() -> None:
    world = World(make_scheduler())
    session = paused(world, "a", 0)
    world.answer(session)
    world.run()
    assert world.parts.sessions.trust_for("calc").compared == 0


def test_vllms_longer_id_of_a_request_is_found_by_the_clients() -> None:
    world = World(make_scheduler())
    session = paused(world, "session-1-abcd", 0)
    paused(world, "session-2-abcd", 1000)
    assert expect(world, "session-1", 5.0) == {"taken": True}
    kv = world.parts.manager.paused_kvs["session-1-abcd"]
    assert kv.remaining(kv.since) == pytest.approx(5.0 + world.now - kv.since)
    assert expect(world, "session-1-abcd", 6.0) == {"taken": True}
    assert expect(world, "sess", 5.0) == {"taken": False}
    assert expect(world, "session", 5.0) == {"taken": False}
    world.answer(session)
    assert expect(world, "session-1", 5.0) == {"taken": False}
    assert expect(world, "session-2", 5.0) == {"taken": True}
    world.run()
    assert expect(world, "session-1", 5.0) == {"taken": False}


def test_a_forecast_finds_its_pause_without_looking_at_the_others() -> None:
    world = World(make_scheduler())
    paused(world, "session-1-abcd", 0)
    paused(world, "session-2-abcd", 1000)
    served = world.parts.served

    class Unlooked(dict[str, Any]):
        def __iter__(self) -> Any:
            raise AssertionError("all open pauses were looked at")

        items = keys = values = __iter__

    served.paused = Unlooked(served.paused)
    assert expect(world, "session-2", 5.0) == {"taken": True}
    assert expect(world, "session-3", 5.0) == {"taken": False}


def test_a_forecast_that_comes_too_late_changes_nothing() -> None:
    world = World(make_scheduler())
    session = paused(world, "a", 0)
    world.answer(session)
    assert expect(world, "a", 5.0) == {"taken": False}
    world.run()
    assert expect(world, "a", 5.0) == {"taken": False}


@pytest.mark.parametrize(
    ("request_id", "seconds", "problem"),
    [
        (3, 1.0, "`request` must be an id, got 3"),
        ("", 1.0, "`request` must be an id, got ''"),
        ("a", "soon", "`seconds` must be a number, got 'soon'"),
        ("a", True, "`seconds` must be a number, got True"),
        ("a", -1.0, "must be a positive number of seconds, got -1.0"),
        ("a", float("nan"), "must be a positive number of seconds, got nan"),
    ],
)
def test_a_wrong_forecast_is_refused(request_id: Any, seconds: Any, problem: str) -> None:
    world = World(make_scheduler())
    paused(world, "a", 0)
    before = world.parts.manager.paused_kvs["a"].durations
    assert problem in expect(world, request_id, seconds)["error"]
    assert world.parts.manager.paused_kvs["a"].durations is before
