"""A first agent: the bundled model, a built-in tool and a function of your own.

    python examples/01_first_agent.py

The model's call pauses its request inside the engine, the tool runs, and the request goes on.
"""

import asyncio

from caesura import Agent

PRICES = {"lamp": 24, "chair": 59, "book": 12}


def price(item: str) -> int:
    """Look up what an item costs."""
    return PRICES[item]


async def main() -> None:
    async with Agent(tools=["calculator", price]) as agent:
        answer = await agent.run("How much do 7 lamps cost?")
    for call, result in answer.calls:
        print(f"{call.name} {call.arguments} -> {result.content}")
    print(answer)


if __name__ == "__main__":
    asyncio.run(main())
