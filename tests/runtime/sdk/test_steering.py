"""Sessions that are steered: what was said to a run is kept, and goes on elsewhere."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from caesura import Agent, ScriptedEngine, Sessions, UsageError
from caesura.runtime.events import Steered, TextDelta
from caesura.runtime.testing import say

STORY = "Once upon a time there was a king who had no name at all."


async def told(session: Any, prompt: str) -> tuple[list[Any], str | None]:
    """Run a prompt and steer at the first text; return the events, and the state behind it."""
    events: list[Any] = []
    steering: list[asyncio.Task[bool]] = []
    state = None
    async with aclosing(session.stream(prompt)) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TextDelta) and not steering:
                steering.append(asyncio.create_task(session.steer("Make it short.")))
                await asyncio.sleep(0)
            if isinstance(event, Steered):
                state = session.state()
    assert await steering[0]
    return events, state


async def test_a_session_is_steered_and_goes_on_elsewhere_without_rendering(
    tmp_path: Path,
) -> None:
    store = Sessions(tmp_path / "sessions.sqlite")
    first = ScriptedEngine([say(STORY), say("The end.")])
    async with first, Agent(first).session(id="u", store=store) as session:
        events, _ = await told(session, "Tell me a story.")
        assert events[-1].text == "The end."
        before = session.messages
    assert [each["role"] for each in before] == ["user", "assistant", "user", "assistant"]
    second = ScriptedEngine([say("Yes.")])
    async with second, Agent(second).session(id="u", store=store) as session:
        assert session.messages == before
        await session.run("Sure?")
    (scripted,) = second.sessions
    assert [len(turn) for turn in scripted.turns] == [1, 1, 1]  # replayed, and one new prompt


async def test_a_run_goes_on_behind_what_was_said_to_it() -> None:
    engine = ScriptedEngine([say(STORY), say("The end.")])
    async with Agent(engine).session() as session:
        _, state = await told(session, "Tell me a story.")
        whole = session.messages
    later = ScriptedEngine([say("The end.")])
    async with later, Agent(later).session(state=state) as session:
        answer = await session.run()
        assert answer.text == "The end." and session.messages == whole


async def test_an_interrupted_session_goes_on_in_the_same_session_of_the_engine() -> None:
    engine = ScriptedEngine([say(STORY), say("Hello.")])
    async with engine, Agent(engine).session() as session:
        async with aclosing(session.stream("Tell me a story.")) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    session.interrupt()
        assert STORY.startswith(session.messages[-1]["content"])
        answer = await session.run("Hello?")
        assert answer.text == "Hello." and answer.reason == "stop"
    assert len(engine.sessions) == 1


async def test_a_session_at_rest_cannot_be_steered() -> None:
    session = Agent(ScriptedEngine([])).session()
    with pytest.raises(UsageError, match="no run under way"):
        await session.steer("Hello?")
    with pytest.raises(UsageError, match="no run under way"):
        session.interrupt()
