"""A scripted engine dies at any event, and its sessions go on after a restart."""

import asyncio

import pytest

from caesura.runtime.errors import EngineFailed
from caesura.runtime.events import CallFinished, TextDelta
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine, call, say, think
from caesura.scheduler.messages import SessionSpec

USER = {"role": "user", "content": "Go on then."}
SCRIPT = [think("hm, hm", call("add", a=1, b=2)), say("It is three.")]


async def turns(engine: ScriptedEngine) -> list:
    session = engine.open(SessionSpec())
    first = [event async for event in session.turn([USER])]
    call_id = next(event.call_id for event in first if isinstance(event, CallFinished))
    result = {"role": "tool", "tool_call_id": call_id, "name": "add", "content": "3"}
    return [*first, *[event async for event in session.turn([result])]]


@pytest.mark.parametrize("at", range(10))
async def test_the_same_events_come_wherever_it_dies(at: int) -> None:
    undisturbed = await turns(ScriptedEngine(SCRIPT))
    assert len(undisturbed) == 10, "each place is one in the run"
    seen, deaths = [], []

    async def pace(event: object) -> None:
        seen.append(event)
        if len(seen) == at + 1:
            engine.die()
            deaths.append(asyncio.create_task(engine.restart()))

    engine = ScriptedEngine(SCRIPT, pace=pace)
    with engine.revival.supervising():
        assert await turns(engine) == undisturbed
    assert engine.restarts == 1


async def test_without_a_supervisor_its_turn_fails_at_once() -> None:
    async def pace(event: object) -> None:
        if isinstance(event, TextDelta):
            engine.die(EngineFailed("killed"))

    engine = ScriptedEngine([say("one")], pace=pace)
    with pytest.raises(EngineFailed, match="killed"):
        [event async for event in engine.open(SessionSpec()).turn([USER])]
    with pytest.raises(EngineFailed, match="killed"):
        await engine.check_health()


async def test_a_supervisor_that_gives_up_ends_who_waits() -> None:
    engine = ScriptedEngine([say("one")])
    engine.die()
    with engine.revival.supervising():
        waiting = asyncio.create_task(turns(engine))
        await asyncio.sleep(0)
        engine.revival.give_up(EngineFailed("it died five times"))
        with pytest.raises(EngineFailed, match="five times"):
            await waiting
        with pytest.raises(EngineFailed, match="five times"):
            await engine.revived(EngineFailed("another death"))


async def test_an_agent_does_not_notice_a_death_while_its_tool_runs() -> None:
    dead = asyncio.Event()

    async def add(a: int, b: int) -> int:
        """Add."""
        engine.die()
        dead.set()
        return a + b

    engine = ScriptedEngine(SCRIPT)
    with engine.revival.supervising():
        running = asyncio.create_task(Agent(engine, tools=[add]).run("1 + 2?"))
        await dead.wait()
        with pytest.raises(EngineFailed):
            await engine.check_health()
        await engine.restart()
        assert (await running).text == "It is three."
