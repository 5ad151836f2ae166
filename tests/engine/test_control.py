"""Hooks and choices of tools: the same tests on scripted engines, the bundled model, and a server.

The bundled model is small, but its grammar makes it call what it may call.
"""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from caesura import (
    Agent,
    Context,
    End,
    EngineFailed,
    Hooks,
    Refuse,
    RemoteEngine,
    Sampling,
    ScriptedEngine,
)
from caesura.intercept.calls.events import Event, TextDelta
from caesura.runtime.engine import Engine
from caesura.runtime.events import HookActed, ModelChanged, RunEnded, RunEvent, TurnEnded
from caesura.runtime.testing import Item, call, fail, say
from caesura.scheduler.messages import CallRule
from caesura.scheduler.vllm.client.engine import VllmEngine

pytestmark = pytest.mark.engine

Goods = Literal["lamp", "chair"]
ORDER = ["look", "price", "buy"]


@pytest.fixture(params=["scripted", "real", "remote"])
async def on(
    request: pytest.FixtureRequest, engine: VllmEngine, settled: Any, remote: RemoteEngine
) -> Callable[[], Engine]:
    """Return an engine; the scripted one calls the tools in their order."""
    kinds: dict[str, Engine] = {"real": engine, "remote": remote}

    def model(messages: Any, tools: Any) -> Item:
        if not tools or messages[-1]["role"] == "tool":
            return say("Once upon a time, long ago.")
        asked = sum(each["role"] == "user" for each in messages)
        return call(ORDER[asked - 1], item="lamp")

    return lambda: kinds.get(request.param) or ScriptedEngine(model)


def look(item: Goods) -> str:
    """Look at an item."""
    return "nice"


def price(item: Goods) -> int:
    """Look up what an item costs."""
    return 24


def buy(item: Goods) -> str:
    """Buy an item."""
    return "bought"


class Steps(Hooks[list[str]]):
    """A run begins with the next of three calls, and then only talks. Nobody buys."""

    def tools(self, context: Context[list[str]]) -> list[str]:
        return [ORDER[len(context.deps)]] if context.usage.turns == 0 else []

    def before_call(self, context: Context[list[str]], arguments: dict[str, Any]) -> Any:
        assert context.call is not None
        context.deps.append(context.call.name)
        return Refuse("Nobody buys here.") if context.call.name == "buy" else None


async def test_a_step_calls_what_it_may_and_the_prompt_stays(on: Callable[[], Engine]) -> None:
    settings = Sampling(temperature=0, max_tokens=40, calls=CallRule(required=True, single=True))
    called: list[str] = []
    engine = on()
    agent = Agent(engine, [look, price, buy], hooks=[Steps()], sampling=settings)
    events: list[RunEvent] = []
    async with agent, agent.session(deps=called) as session:
        for _ in ORDER:
            events += [event async for event in session.stream("Go on.")]
        results = [each["content"] for each in session.messages if each["role"] == "tool"]
    assert called == ORDER
    assert results == ["nice", "24", "error: Nobody buys here."]
    acted = [event for event in events if isinstance(event, HookActed)]
    assert [(each.hook, each.text) for each in acted] == [
        ("Steps.before_call", "Nobody buys here.")
    ]
    if not isinstance(engine, ScriptedEngine):  # the tools were told once, and read once
        turns = [event for event in events if isinstance(event, TurnEnded)]
        assert len(turns) == 6
        assert all(2 * turn.prompt_tokens < turns[0].prompt_tokens for turn in turns[1:])


class Short(Hooks[Any]):
    """Stops the model after some text."""

    def on_event(self, context: Context[Any], event: Event) -> Any:
        return End("Stop.") if isinstance(event, TextDelta) else None


async def test_a_hook_stops_the_model_and_the_session_goes_on(on: Callable[[], Engine]) -> None:
    settings = Sampling(temperature=0, max_tokens=40)
    async with Agent(on(), hooks=[Short()], sampling=settings).session() as session:
        for _ in range(2):
            assert (await session.run("Tell me a story.")).text == "Stop."
        contents = [each["content"] for each in session.messages]
    assert contents == ["Tell me a story.", "Stop."] * 2


async def test_a_run_goes_on_with_the_next_model(on: Callable[[], Engine]) -> None:
    looked: list[str] = []

    def watched(item: Goods) -> str:
        """Look at an item."""
        looked.append(item)
        return "nice"

    broken = ScriptedEngine([call("watched", item="lamp"), fail(EngineFailed("killed"), "It is")])
    settings = Sampling(temperature=0, max_tokens=20)
    agent = Agent([broken, on()], [watched], sampling=settings, hooks=[NoCalls()])
    events = [event async for event in agent.stream("Look at a lamp.")]
    assert looked == ["lamp"]
    assert [event.reason for event in events if isinstance(event, ModelChanged)] == ["killed"]
    ended = events[-1]
    assert isinstance(ended, RunEnded) and ended.usage.turns == 2
    assert ended.text and not ended.text.startswith("It is")


class NoCalls(Hooks[Any]):
    """Lets the model only talk behind a call."""

    def tools(self, context: Context[Any]) -> list[str] | None:
        return [] if context.usage.turns else None


async def test_another_agent_goes_on(on: Callable[[], Engine]) -> None:
    """The first agent is made to call, and the other one only talks."""
    settings = Sampling(temperature=0, max_tokens=20)
    passing = Sampling(temperature=0, max_tokens=40, calls=CallRule(required=True, single=True))
    scripted = ScriptedEngine([call("transfer_to_sales"), say("I sell."), say("Still here.")])
    engine = scripted if isinstance(on(), ScriptedEngine) else on()
    sales = Agent(engine, name="sales", instructions="You sell.", sampling=settings)
    triage = Agent(engine, name="triage", handoffs=[sales], sampling=passing)
    async with triage.session() as session:
        answers = [await session.run("A lamp, please."), await session.run("And a chair.")]
        roles = [each["role"] for each in session.messages]
        told = session.messages[0]["content"]
    assert [each.agent for each in answers] == ["sales"] * 2
    assert [made.name for made, _ in answers[0].calls] == ["transfer_to_sales"]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert told == "You sell." and all(each.text for each in answers)
