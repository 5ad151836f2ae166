"""An agent whose tools run in the background, and its sessions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, LimitReached, Limits, ScriptedEngine, Sessions, tool
from caesura.runtime.events import TurnEnded
from caesura.runtime.run.fold import CANCELLED, acknowledgement, late_message
from caesura.runtime.testing import call, calls, say


class Lookups:
    """Slow lookups in the background, which end once the model has nothing else to say."""

    def __init__(self) -> None:
        self.idle, self.made = asyncio.Event(), 0

        @tool(background=True, safe_to_repeat=True)
        async def look(place: str) -> str:
            """Look up a place."""
            self.made += 1
            await self.idle.wait()
            return f"{place} is sunny"

        self.tool = look

    async def pace(self, event: Any) -> None:
        if isinstance(event, TurnEnded) and event.reason == "stop":
            self.idle.set()

    def engine(self, *script: Any) -> ScriptedEngine:
        return ScriptedEngine(script, pace=self.pace)


async def test_an_agent_goes_on_and_answers_with_the_late_results() -> None:
    lookups = Lookups()
    engine = lookups.engine(
        calls(call("look", place="Rome"), call("look", place="Oslo")),
        say("I am looking."),
        say("Both are sunny."),
    )
    async with engine, Agent(engine, [lookups.tool]).session() as session:
        answer = await session.run("How is it in Rome and in Oslo?")
        assert answer.text == "Both are sunny."
        assert [result.content for _, result in answer.calls] == ["Rome is sunny", "Oslo is sunny"]
        told = [each["content"] for each in session.messages[2:]]
    (scripted,) = engine.sessions
    assert told == [
        acknowledgement("call_1", "look"),
        acknowledgement("call_2", "look"),
        "I am looking.",
        late_message("call_1", "look", "Rome is sunny")["content"],
        late_message("call_2", "look", "Oslo is sunny")["content"],
        "Both are sunny.",
    ]
    assert len(scripted.turns) == 3


async def test_a_session_goes_on_behind_late_results_without_rendering(tmp_path: Path) -> None:
    store, lookups = Sessions(tmp_path / "sessions.sqlite"), Lookups()
    first = lookups.engine(call("look", place="Rome"), say("I am looking."), say("Sunny."))
    async with first, Agent(first, [lookups.tool]).session(id="u", store=store) as session:
        await session.run("How is it in Rome?")
        before = session.messages
    second = ScriptedEngine([say("Yes.")])
    async with second, Agent(second, [lookups.tool]).session(id="u", store=store) as session:
        assert session.messages == before
        await session.run("Sure?")
    # The turns were replayed, and the prompt alone was new.
    (scripted,) = second.sessions
    assert [len(turn) for turn in scripted.turns] == [1, 1, 1, 1]
    assert lookups.made == 1


async def test_a_run_that_goes_on_elsewhere_tells_the_result_where_it_told_it(
    tmp_path: Path,
) -> None:
    lookups = Lookups()
    script = [call("look", place="Rome"), say("I am looking."), say("Sunny.")]
    engine = lookups.engine(*script)
    async with Agent(engine, [lookups.tool]).session() as session:
        states = []
        async for event in session.stream("How is it in Rome?"):
            if isinstance(event, TurnEnded):
                states.append(session.state())
        whole = session.messages
    # It goes on from its state behind the first turn, and behind the second.
    for number, state in enumerate(states[:2]):
        later = Lookups()
        engine = later.engine(*script[number + 1 :])
        async with engine, Agent(engine, [later.tool]).session(state=state) as session:
            answer = await session.run()
            assert answer.text == "Sunny." and session.messages == whole


async def test_a_limit_that_ends_the_run_tells_the_next_one_of_cancelled_calls() -> None:
    lookups = Lookups()
    engine = ScriptedEngine([call("look", place="Rome"), say("I am looking."), say("Fine.")])
    limits = Limits(max_wait_seconds=0)
    async with engine, Agent(engine, [lookups.tool], limits=limits).session() as session:
        assert (await session.run("How is it in Rome?")).text == "I am looking."
        assert session.messages[-1] == late_message("call_1", "look", CANCELLED)
        assert (await session.run("Never mind.")).text == "Fine."


async def test_a_run_out_of_turns_leaves_no_call_open() -> None:
    lookups = Lookups()
    engine = lookups.engine(call("look", place="Rome"), say("I am looking."), say("Fine."))
    limits = Limits(max_turns=2)
    async with engine, Agent(engine, [lookups.tool], limits=limits).session() as session:
        with pytest.raises(LimitReached):
            await session.run("How is it in Rome?")
        assert session.messages[-1]["late"] is True
        await session.run("Never mind.")
