"""An agent here, a model elsewhere: the tools run in this process, the model on a server.

    caesura serve &
    python examples/14_remote_agent.py http://127.0.0.1:8000/v1

`caesura serve` keeps the KV cache while a tool runs, and an answer whose connection breaks is read
on where it was. Any other server with OpenAI's chat completions works too.
"""

import asyncio
import sys

from caesura import Agent
from caesura.runtime.events import RunEnded, TextDelta, ToolReturned

PRICES = {"lamp": 24, "chair": 59, "book": 12}


def price(item: str) -> int:
    """Look up what an item costs.

    Args:
        item: one of lamp, chair and book.
    """
    return PRICES[item]


async def main(url: str) -> None:
    """Ask two questions in one conversation, and show what happens."""
    agent = Agent(url, [price], instructions="Answer in one sentence.")
    async with agent, agent.session() as session:
        for question in ("What does a lamp cost?", "And a chair?"):
            print(f"> {question}")
            async for event in session.stream(question):
                match event:
                    case TextDelta(text=text):
                        print(text, end="", flush=True)
                    case ToolReturned(call=call, result=result):
                        print(f"[{call.name} {call.arguments} -> {result.content}]")
                    case RunEnded(usage=usage):
                        print(f"\n  {usage.turns} turns, {usage.cached_tokens} tokens cached")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"))
