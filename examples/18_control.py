"""An agent under control: dependencies, hooks, tools by step, limits, a handoff, a second model.

    python examples/18_control.py

Runs alone, in a second: a script stands in for the models. The customer is known to tools by the
run's dependencies. A guard keeps refunds small, hides card numbers, and ends what is off topic.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from caesura import (
    Agent,
    Context,
    End,
    EngineFailed,
    Hooks,
    Limits,
    Prices,
    Refuse,
    ScriptedEngine,
)
from caesura.runtime.events import HandedOff, HookActed, ModelChanged, RunEnded, ToolReturned
from caesura.runtime.testing import Item, call, fail, say
from caesura.scheduler.messages import Message, ToolSpec


@dataclass
class Shop:
    """What the tools of a run work with."""

    customer: str
    orders: dict[int, int]
    refunds: dict[int, int] = field(default_factory=dict)


def order(context: Context[Shop], number: int) -> str:
    """Look up an order of the customer."""
    return f"{context.deps.orders[number]} euros, paid by card 4711-0815"


def refund(number: int, euros: int, context: Context[Shop]) -> str:
    """Give money back for an order."""
    context.deps.refunds[number] = euros
    return f"{euros} euros are on their way to {context.deps.customer}"


def instructions(context: Context[Shop]) -> str:
    """Return what the agent for refunds is told, once for each session."""
    return f"You give refunds to {context.deps.customer}."


class Guard(Hooks[Shop]):
    """What this shop allows."""

    def before_run(self, context: Context[Shop], prompt: Any) -> End | None:
        return End("I help with orders.") if "joke" in prompt else None

    def tools(self, context: Context[Shop]) -> list[str] | None:
        seen = any(
            each["role"] == "tool" and "paid" in each["content"] for each in context.messages
        )
        return None if seen else ["order"]

    def before_call(
        self, context: Context[Shop], arguments: dict[str, Any]
    ) -> Refuse | dict[str, Any] | None:
        if context.call is None or context.call.name != "refund":
            return None
        if arguments["euros"] > 50:
            return Refuse("Refunds over 50 euros need a person.")
        return None

    def after_call(self, context: Context[Shop], result: Any) -> str:
        return str(result.content).replace("4711-0815", "****")


def model(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """What the model writes, from what it has seen."""
    last = messages[-1]
    if last["role"] == "user":
        triage = tools[0]["function"]["name"] == "transfer_to_refunds"
        return call("transfer_to_refunds") if triage else call("order", number=7)
    if "goes on" in last["content"]:
        return call("order", number=7)
    if "paid" in last["content"]:
        return call("refund", number=7, euros=90)
    if "need a person" in last["content"]:
        return call("refund", number=7, euros=50)
    return say("50 euros are on their way, and a person looks at the rest.")


async def main() -> None:
    """Pass one conversation on, and let a guard and a second model keep it going."""
    away = ScriptedEngine([fail(EngineFailed("the server is away"))], model="large")
    here = ScriptedEngine(model, model="small")
    refunds: Agent[str, Shop] = Agent(
        [away, here],
        [order, refund],
        name="refunds",
        instructions=instructions,
        hooks=[Guard()],
    )
    prices = Prices(prompt=0.30, completion=1.20)
    triage: Agent[str, Shop] = Agent(
        here,
        name="triage",
        instructions="Find out who can help.",
        handoffs=[refunds],
        limits=Limits(max_calls=10, max_cost=0.01, prices=prices),
    )
    shop = Shop("Eva", {7: 90})
    async with triage.session(deps=shop) as session:
        async for event in session.stream("I want the money for order 7 back."):
            match event:
                case HandedOff(agent=agent):
                    print(f"{agent} goes on")
                case ModelChanged(model=name, reason=reason):
                    print(f"the model {name} goes on: {reason}")
                case HookActed(hook=hook, action=action, text=text):
                    print(f"{hook} {action}: {text}")
                case ToolReturned(call=made, result=result):
                    print(f"{made.name} {made.arguments} -> {result.content}")
                case RunEnded():
                    print(f"{event.agent}: {event.text}")
                    print(f"{event.total_usage.turns} turns, {event.total_usage.calls} calls")
        print((await session.run("Tell me a joke.")).text)
    print(f"refunded: {shop.refunds}")


if __name__ == "__main__":
    asyncio.run(main())
