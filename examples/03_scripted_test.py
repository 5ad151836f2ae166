"""How to test an agent of your own: a scripted engine in the place of the model.

    python examples/03_scripted_test.py
    pytest examples/03_scripted_test.py        # with pytest-asyncio in its auto mode

No model, no engine, no waiting: the script says what the model writes, turn by turn, and the
engine keeps record of what the model would have seen.
"""

import asyncio
from collections.abc import Sequence

from caesura.runtime.engine import Engine
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import Item, ScriptedEngine, call, calls, malformed, say
from caesura.scheduler.messages import Message, ToolSpec

STOCK = {"lamp": 3, "chair": 0}


def stock(item: str) -> int:
    """Tell how many of an item are left."""
    return STOCK[item]


def shop_assistant(engine: Engine | None = None) -> Agent:
    """The agent under test; without an engine it runs on the bundled model."""
    return Agent(engine, [stock, "calculator"], instructions="You work in a shop.")


async def test_the_tool_is_called_and_its_result_reaches_the_model() -> None:
    # At the end of the block the engine asserts that the script was played to its end.
    async with ScriptedEngine([call("stock", item="lamp"), say("Three lamps.")]) as engine:
        answer = await shop_assistant(engine).run("How many lamps are left?")
    assert answer.text == "Three lamps."
    assert [result.content for _, result in answer.calls] == ["3"]
    resumed_with = engine.sessions[0].turns[1]
    assert [message["content"] for message in resumed_with] == ["3"]


async def test_calls_of_one_turn_are_answered_in_order() -> None:
    both = calls(call("stock", item="lamp"), call("stock", item="chair"))
    async with ScriptedEngine([both, say("Only lamps.")]) as engine:
        answer = await shop_assistant(engine).run("What is left?")
    assert [result.content for _, result in answer.calls] == ["3", "0"]


async def test_errors_go_to_the_model_and_not_to_the_user() -> None:
    turns: list[Item] = [
        call("stock", item="unicorn"),  # the tool raises KeyError
        malformed('{"name": "stock", "arg', reason="the JSON ends early"),
        say("I cannot tell."),
    ]
    async with ScriptedEngine(turns) as engine:
        answer = await shop_assistant(engine).run("How many unicorns are left?")
    assert answer.text == "I cannot tell."
    assert [result.error for _, result in answer.calls] == ["failed", "malformed_call"]


async def test_a_script_may_be_a_function() -> None:
    def model(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
        return say(f"I see {len(messages)} messages and {len(tools)} tools.")

    async with ScriptedEngine(model) as engine, shop_assistant(engine).session() as session:
        await session.run("Hello?")
        answer = await session.run("And now?")
    assert answer.text == "I see 4 messages and 2 tools."


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            asyncio.run(test())
            print(f"passed: {name}")
