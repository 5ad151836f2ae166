"""An agent that asks before it acts: a question to the user, and a call that has to be approved.

    python examples/08_ask_first.py

Runs alone, in a second: a script stands in for the model, so that the calls are always the same.
Everything else is real: the tools, the wait, the file that keeps what is open. In a terminal you
are asked; where the input is no terminal, a callback answers, and says so.
"""

import asyncio
import json
import sys
from collections.abc import Sequence

from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import Item, ScriptedEngine, call, say
from caesura.scheduler.messages import Message, ToolSpec
from caesura.tools import tool
from caesura.tools.people import Pending

BOOKED: list[str] = []


@tool(approval=True)
async def book(city: str, euros: int) -> str:
    """Book a trip. Nothing is booked before a person has approved it."""
    BOOKED.append(city)
    return f"booked: {city}, {euros} euros"


def model(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Item:
    """What the model writes, from what it has seen: it asks, then it books what was said."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not results:
        return call("ask_user", question="Where do you want to go?", options=["Oslo", "Rome"])
    if len(results) == 1:
        return call("book", city=results[0], euros=220)
    booked = results[1].startswith("booked")
    return say("All is booked." if booked else f"I have not booked it ({results[1]}).")


def in_terminal(item: Pending) -> str | bool:
    """Ask the user at the keyboard."""
    if item.kind == "question":
        return input(f"{item.question} ({' or '.join(item.options)}) ")
    said = input(f"May I call {item.tool} with {item.arguments}? (y, or why not) ")
    return True if said.strip().lower() in ("y", "yes") else said or False


async def by_itself(item: Pending) -> str | bool:
    """Answer as a program would: the first option, and any trip that is cheap enough."""
    if item.kind == "question":
        said: str | bool = item.options[0]
    else:
        said = json.loads(item.arguments)["euros"] < 500 or "that is too expensive"
    print(f"(no terminal: a callback answers the {item.kind} with {said!r})")
    return said


async def main() -> None:
    ask = in_terminal if sys.stdin.isatty() else by_itself
    async with Agent(
        ScriptedEngine(model), ["ask_user", book], on_question=ask, on_approval=ask
    ) as agent:
        answer = await agent.run("Book me a trip.")
    for made, result in answer.calls:
        print(f"{made.name} {made.arguments} -> {result.content} ({result.seconds:.2f} s)")
    print(answer)
    print(f"booked: {', '.join(BOOKED) or 'nothing'}")


if __name__ == "__main__":
    asyncio.run(main())
