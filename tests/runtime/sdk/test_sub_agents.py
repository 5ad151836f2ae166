"""Agents that work for other agents: their place in the queue, and one budget."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from caesura import Agent, LimitReached, Limits, ScriptedEngine, UsageError
from caesura.runtime.events import ToolReported, ToolReturned
from caesura.runtime.testing import Item, call, calls, say
from caesura.scheduler.messages import Message


def shout(text: str) -> str:
    """Shout a text."""
    return text.upper()


def model(messages: Sequence[Message], tools: Sequence[Any]) -> Item:
    """Let the chief ask its helper twice, and the helper shout once."""
    names = [each["function"]["name"] for each in tools]
    if messages[-1]["role"] == "tool":
        return say(f"So: {messages[-1]['content']}")
    if "helper" in names:
        return calls(call("helper", task="one"), call("helper", task="two"))
    return call("shout", text=messages[-1]["content"])


async def test_sub_agents_run_at_once_at_their_parents_place() -> None:
    engine = ScriptedEngine(model)
    helper = Agent(engine, [shout], name="helper", instructions="Shout what you are told.")
    async with Agent(engine, [helper]).session() as session:
        events = [event async for event in session.stream("Go.")]
    returned = [event.result.content for event in events if isinstance(event, ToolReturned)]
    assert sorted(returned) == ["So: ONE", "So: TWO"]
    reported = [event.text for event in events if isinstance(event, ToolReported)]
    assert sorted(reported) == ['shout {"text": "one"}', 'shout {"text": "two"}']
    chief, *helpers = engine.sessions
    assert chief.spec.origin.parent == ""
    assert [each.spec.origin.parent for each in helpers] == [session.id] * 2
    assert helpers[0].turns[0][0] == {"role": "system", "content": "Shout what you are told."}
    assert engine.open_sessions == 0


async def test_an_agent_that_a_tool_runs_works_for_the_tools_session() -> None:
    engine = ScriptedEngine(lambda messages, tools: call("ask") if tools else say("Yes."))
    inner = Agent(engine)

    async def ask() -> str:
        """Ask another agent."""
        return (await inner.run("Is it?")).text

    script: list[Item] = [call("ask"), say("It is.")]
    outer = ScriptedEngine(script)
    async with Agent(outer, [ask]).session() as session:
        answer = await session.run("Go.")
    assert answer.calls[0][1].content == "Yes."
    assert engine.sessions[0].spec.origin.parent == session.id


async def test_sub_agents_spend_the_tokens_of_the_run() -> None:
    """Of 12 tokens the helpers' long texts leave none for the chief."""

    def chatty(messages: Sequence[Message], tools: Sequence[Any]) -> Item:
        if tools and messages[-1]["role"] != "tool":
            return call("helper", task="Talk.")
        return say("word " * 30)

    engine = ScriptedEngine(chatty)
    helper = Agent(engine, name="helper", instructions="Talk.")
    agent = Agent(engine, [helper], limits=Limits(max_tokens=12))
    with pytest.raises(LimitReached, match="more than max_tokens=12 tokens") as reached:
        await agent.run("Go.")
    assert reached.value.limit == "max_tokens"
    assert engine.sessions[1].samplings[0].max_tokens == 9  # the call took three


async def test_a_sub_agent_whose_run_has_no_token_left_is_told_why() -> None:
    engine = ScriptedEngine(
        lambda messages, tools: (
            calls(*(call("helper", task=str(n)) for n in range(2)))
            if tools and messages[-1]["role"] != "tool"
            else say("word " * 30)
        )
    )
    helper = Agent(engine, name="helper", instructions="Talk.")
    one_by_one = helper.as_tool(concurrency=1)
    agent = Agent(engine, [one_by_one], limits=Limits(max_tokens=12))
    told: list[str] = []
    with pytest.raises(LimitReached):
        async for event in agent.stream("Go."):
            if isinstance(event, ToolReturned):
                told.append(event.result.content)
    assert "the max_tokens of the run it is part of" in told[1]


async def test_time_of_the_run_is_that_of_its_sub_agents() -> None:
    entered = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        entered.set()
        await asyncio.Event().wait()

    engine = ScriptedEngine(
        lambda messages, tools: call(tools[0]["function"]["name"], **_arguments(tools))
    )
    helper = Agent(engine, [wait], name="helper", instructions="Wait.", limits=Limits())
    agent = Agent(engine, [helper], limits=Limits(max_seconds=0.5))
    with pytest.raises(LimitReached, match="max_seconds"):
        await agent.run("Go.")
    assert entered.is_set()
    assert engine.open_sessions == 0


def _arguments(tools: Sequence[Any]) -> dict[str, str]:
    return {"task": "Wait."} if tools[0]["function"]["name"] == "helper" else {}


async def test_names_and_options_are_those_that_are_given() -> None:
    helper = Agent(ScriptedEngine(), name="helper", instructions="Help.")
    made = helper.as_tool("assistant", "Ask somebody.", timeout_seconds=5)
    assert (made.name, made.description, made.timeout_seconds) == ("assistant", "Ask somebody.", 5)
    assert (helper.as_tool().name, helper.as_tool().description) == ("helper", "Help.")
    assert helper.as_tool().timeout_seconds is None


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (Agent(ScriptedEngine(), instructions="Help."), "has no name, which another agent needs"),
        (Agent(ScriptedEngine(), name="helper"), "has no instructions, which another agent needs"),
    ],
)
def test_an_agent_without_a_name_is_no_tool(agent: Agent, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(ScriptedEngine(), [agent])
