"""Answers of a type: a model of pydantic's beside tools, a list that grows, and a function.

    python examples/13_typed_answers.py

Runs alone, in a second: a script stands in for the model. With a model of your own in its place,
the engine's grammar keeps every answer to the type.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

from pydantic import BaseModel, Field

from caesura import Agent, ScriptedEngine
from caesura.runtime.events import OutputRefused, OutputWritten
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import Message, ToolSpec

PRICES = {"lamp": 24, "chair": 59, "book": 12}


class Offer(BaseModel):
    """What a customer is offered."""

    item: str
    count: Annotated[int, Field(ge=1)]
    euros: int = Field(description="for all of them")


def price(item: str) -> int:
    """Look up what an item costs."""
    return PRICES[item]


def order(item: str, count: int) -> int:
    """Order items.

    Args:
        count: how many.
    """
    if item not in PRICES:
        raise ValueError(f"there is no {item}, but there are {', '.join(PRICES)}")
    return count * PRICES[item]


def model(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """What the model writes, from what it has seen."""
    asked = messages[-1]["content"]
    if asked == "Offer me 7 lamps.":
        return call("price", item="lamp")
    if asked == "24":
        return say('{"item": "lamp", "count": 7, "euros": 168}')
    if asked == "What else is there?":
        return say('[{"item": "chair", "count": 1, "euros": 59}, {"item": "book", "count": 1}]')
    if asked.startswith("Your answer does not fit: [1].euros"):
        return say(
            '[{"item": "chair", "count": 1, "euros": 59},'
            ' {"item": "book", "count": 1, "euros": 12}]'
        )
    if asked.startswith("Your answer does not fit: there is no"):
        return say('{"item": "book", "count": 2}')
    return say('{"item": "shelf", "count": 2}')


async def main() -> None:
    engine = ScriptedEngine(model)
    answer = await Agent(engine, [price], output=Offer).run("Offer me 7 lamps.")
    print(f"{answer.output!r} after {len(answer.calls)} call")

    events = Agent(engine, output=list[Offer]).stream("What else is there?")
    shown = 0
    async with aclosing(events):
        async for event in events:
            if isinstance(event, OutputRefused):
                print(f"refused: {event.reason}")
                shown = 0
            elif isinstance(event, OutputWritten) and event.output is not None:
                for offer in event.output[shown:]:
                    print(f"offered: {offer!r}")
                shown = len(event.output)

    paid = await Agent(engine, output=order).run("Order two books for my shelf.")
    print(f"paid {paid.output} euros in {paid.usage.turns} tries")


if __name__ == "__main__":
    asyncio.run(main())
