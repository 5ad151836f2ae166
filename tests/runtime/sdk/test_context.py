"""Dependencies and contexts: of tools, of instructions, and of agents that work for others."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from caesura import Agent, Context, ScriptedEngine, Tool, UsageError, tool
from caesura.runtime.events import ToolReported
from caesura.runtime.testing import Item, call, calls, say
from caesura.tools import Dispatcher, Registry
from caesura.tools.result import ToolCall

pytestmark = pytest.mark.timeout(120)


@dataclass
class Shop:
    """What a lamp costs, and who asks."""

    euros: int
    customer: str = "Eva"


@tool
def price(item: str, context: Context[Shop]) -> str:
    """Look up what an item costs."""
    return f"{item}: {context.deps.euros} euros"


async def first(context: Context[Shop], item: str = "lamp") -> str:
    """Look up a price."""
    return f"{item} {context.deps.euros}"


def annotated(item: str, *, run: Annotated[Context[Shop], "hidden"]) -> str:
    """Look up a price."""
    return f"{item} {run.deps.euros}"


def bare(context: Context, item: str) -> str:
    """Look up a price."""
    return f"{item} {context.deps.euros}"


class Till:
    """A method's context."""

    def look(self, context: Context[Shop], item: str) -> str:
        """Look up a price."""
        return f"{item} {context.deps.euros}"


@pytest.mark.parametrize("function", [first, annotated, bare, Till().look])
async def test_a_context_stands_anywhere_and_is_hidden_from_the_model(
    function: Callable[..., Any],
) -> None:
    name = function.__name__
    engine = ScriptedEngine([call(name, item="lamp"), say("24.")])
    agent: Agent[str, Shop] = Agent(engine, [function])
    answer = await agent.run("What does it cost?", deps=Shop(24))
    assert answer.calls[0][1].content == "lamp 24"
    [spec] = engine.sessions[0].spec.tools
    assert set(spec["function"]["parameters"]["properties"]) == {"item"}


async def test_the_model_cannot_give_a_context() -> None:
    engine = ScriptedEngine([call("price", item="lamp", context={"deps": 1}), say("24.")])
    answer = await Agent(engine, [price]).run("Go.", deps=Shop(24))
    assert answer.calls[0][1].error == "invalid_arguments"


async def test_runs_at_once_have_dependencies_of_their_own() -> None:
    async def model(messages: Any, tools: Any) -> Any:
        await asyncio.sleep(0)
        return say(messages[-1]["content"]) if len(messages) > 1 else call("price", item="lamp")

    agent = Agent(ScriptedEngine(model), [price])
    answers = await asyncio.gather(*(agent.run("Go.", deps=Shop(n)) for n in (1, 2, 3)))
    assert [each.text for each in answers] == [f"lamp: {n} euros" for n in (1, 2, 3)]


async def test_a_context_tells_of_its_call_and_its_run() -> None:
    seen: list[tuple[Any, ...]] = []

    async def look(context: Context[None], item: str) -> str:
        """Look."""
        messages = [each["role"] for each in context.messages]
        assert context.call is not None
        seen.append((context.call.name, context.call.id, context.session, context.usage, messages))
        context.report("half way")
        return item

    script: list[Item] = [
        call("look", item="a"),
        call("look", item="b"),
        say("Done."),
        call("look", item="c"),
    ]
    async with Agent(ScriptedEngine([*script, say("Yes.")]), [look]).session() as session:
        events = [event async for event in session.stream("Go.")]
        first_run = session.usage
        await session.run("Again.")
    assert [event.text for event in events if isinstance(event, ToolReported)] == ["half way"] * 2
    assert {each[2] for each in seen} == {session.id}
    turns = [each[3].turns for each in seen]  # a call begins before its turn ends
    assert turns[0] <= 1 <= turns[1] <= 2 and turns[2] <= 1
    assert 0 < seen[1][3].prompt_tokens < first_run.prompt_tokens
    assert seen[1][4][:3] == ["user", "assistant", "tool"]


async def test_a_thread_reports_through_its_context() -> None:
    def slow(context: Context[None]) -> str:
        """Work."""
        context.report("in a thread")
        return "ok"

    engine = ScriptedEngine([call("slow"), say("Done.")])
    events = [event async for event in Agent(engine, [slow]).stream("Go.")]
    assert [event.text for event in events if isinstance(event, ToolReported)] == ["in a thread"]


async def test_sub_agents_have_their_callers_dependencies_unless_given_others() -> None:
    def model(messages: Any, tools: Any) -> Any:
        names = [each["function"]["name"] for each in tools]
        if messages[-1]["role"] == "tool":
            return say(messages[-1]["content"])
        if "helper" in names:
            return calls(call("helper", task="one"), call("other"))
        return call("price", item="lamp")

    engine = ScriptedEngine(model)
    helper = Agent(engine, [price], name="helper", instructions="Help.")

    async def other() -> str:
        """Ask the helper about another shop."""
        return (await helper.run("two", deps=Shop(7))).text

    answer = await Agent(engine, [helper, other]).run("Go.", deps=Shop(24))
    told = [result.content for _, result in answer.calls]
    assert told == ["lamp: 24 euros", "lamp: 7 euros"]


@pytest.mark.parametrize("deps", [None, 24])
async def test_wrong_dependencies_are_told_before_anything_runs(deps: Any) -> None:
    agent: Agent[str, Any] = Agent(ScriptedEngine(), [price])
    with pytest.raises(UsageError, match=r"price needs dependencies of type Shop, got (none|int)"):
        await agent.run("Go.", deps=deps)
    with pytest.raises(UsageError, match="price needs dependencies of type Shop"):
        agent.session(deps=deps)


def test_dependencies_are_given_without_an_event_loop() -> None:
    agent: Agent[str, Shop] = Agent(ScriptedEngine([call("price", item="a"), say("x")]), [price])
    assert agent.run_sync("Go.", deps=Shop(5)).calls[0][1].content == "a: 5 euros"


def test_a_tool_is_called_by_hand_with_a_context() -> None:
    assert price("lamp", Context(Shop(3))) == "lamp: 3 euros"
    assert isinstance(price, Tool)


async def test_outside_of_a_run_a_tool_says_what_is_missing() -> None:
    with pytest.raises(LookupError, match=r"call it with Context\(deps\)"):
        await price.call(item="lamp")


async def test_without_a_run_that_has_dependencies_a_call_says_so() -> None:
    """As on a server, whose runs have none."""
    registry = Registry([price])
    result = await Dispatcher(registry).run(ToolCall("c", "price", '{"item": "lamp"}'))
    assert result.content == (
        "error: the tool needs dependencies of type Shop, got None: give them by"
        " agent.run(prompt, deps=...)"
    )


# -- instructions ------------------------------------------------------------------------------


def plain() -> str:
    return "Help Eva."


async def asking(context: Context[Shop]) -> str:
    await asyncio.sleep(0)
    return f"Help {context.deps.customer}."


@pytest.mark.parametrize("given", [plain, asking, lambda context: f"Help {context.deps.customer}."])
async def test_instructions_may_be_a_function(given: Any) -> None:
    engine = ScriptedEngine([say("Hello."), say("Bye.")])
    async with Agent(engine, instructions=given).session(deps=Shop(1)) as session:
        assert not session.messages
        await session.run("Hello.")
        await session.run("Bye.")
        roles = [each["role"] for each in session.messages]
    system = {"role": "system", "content": "Help Eva."}
    assert engine.sessions[0].turns[0][0] == system
    assert roles.count("system") == 1


async def test_instructions_are_asked_once_for_each_session() -> None:
    asked: list[str] = []

    def count(context: Context[None]) -> str:
        asked.append(context.session)
        return f"Number {len(asked)}."

    agent = Agent(ScriptedEngine([say("a")] * 4), instructions=count)
    async with agent.session() as session:
        await session.run("Go.")
        await session.run("Go.")
        assert asked == [session.id]
    async with agent.session(session.messages) as follower:  # begins with what was told before
        await follower.run("Go.")
    await agent.run("Go.")
    assert len(asked) == 2


async def test_a_function_of_instructions_is_followed_by_the_schema_of_the_output() -> None:
    engine = ScriptedEngine([say("3")])
    answer = await Agent(engine, output=int, instructions=lambda: "Count.").run("Go.")
    assert answer.output == 3
    told = engine.sessions[0].turns[0][0]["content"]
    assert told.startswith("Count.\n\nYour final answer is JSON")


async def test_a_function_of_output_may_take_a_context() -> None:
    def offer(item: str, context: Context[Shop]) -> str:
        """Offer an item."""
        return f"{item} for {context.deps.euros}"

    agent = Agent(ScriptedEngine([say('{"item": "lamp"}')]), output=offer)
    assert (await agent.run("Go.", deps=Shop(24))).output == "lamp for 24"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "instructions are a text or a function that returns one, got 3"),
        (lambda a, b: "x", "may take a context, and need a, b"),
    ],
)
def test_other_instructions_are_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(ScriptedEngine(), instructions=given)


async def test_a_function_that_returns_no_text_leaves_the_session_usable() -> None:
    texts: list[Any] = [None, "Help."]
    agent = Agent(ScriptedEngine([say("Yes.")]), instructions=lambda: texts.pop(0))
    async with agent.session() as session:
        with pytest.raises(UsageError, match="must be a text, got None"):
            await session.run("Go.")
        assert not session.messages
        assert (await session.run("Go.")).text == "Yes."


async def test_instructions_ask_for_dependencies_too() -> None:
    with pytest.raises(UsageError, match="the function of the instructions needs dependencies"):
        await Agent(ScriptedEngine(), instructions=asking).run("Go.")
