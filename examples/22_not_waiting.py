"""Three slow lookups, one after the other: the run takes as long as the slowest of them.

    python examples/22_not_waiting.py

The model asks for a lookup, reads something into the answer, and asks for the next one. Where it
waits for each result, the run takes the sum of the lookups. In the background they run while the
model goes on, and it reads each result when it comes. The model is a script, so that the example
needs no engine; the same agent runs on any.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from caesura import Agent, ScriptedEngine, tool
from caesura.runtime.events import CallGoesOn, ToolReturned
from caesura.runtime.testing import Item, call, say
from caesura.scheduler.messages import Message

SECONDS = {"Rome": 0.9, "Oslo": 0.6, "Lima": 0.3}


async def look(place: str) -> str:
    """Look up the weather of a place, which takes a while."""
    await asyncio.sleep(SECONDS[place])
    return f"{place} is sunny"


def model(messages: Sequence[Message], tools: Any) -> Item:
    """Ask for each place once, and answer when all are known."""
    asked = sum(bool(each.get("tool_calls")) for each in messages)
    known = [place for place in SECONDS if f"{place} is sunny" in str(messages)]
    if asked < len(SECONDS):
        return call("look", place=list(SECONDS)[asked])
    if len(known) < len(SECONDS):
        return say(f"I know of {len(known)} places so far.")
    return say(f"It is sunny in {', '.join(known)}.")


async def timed(background: bool) -> float:
    """Run the agent; tell what happens, and return the seconds it took."""
    lookup = tool(background=background)(look)
    async with Agent(ScriptedEngine(model), tools=[lookup]) as agent, agent.session() as session:
        began = time.monotonic()
        async for event in session.stream("How is the weather in Rome, Oslo and Lima?"):
            at = f"{time.monotonic() - began:4.1f} s"
            if isinstance(event, CallGoesOn):
                print(f"  {at}  goes on behind {event.call.arguments}")
            elif isinstance(event, ToolReturned):
                print(f"  {at}  {event.result.content}")
        seconds = time.monotonic() - began
        print(" ", session.messages[-1]["content"])
    return seconds


async def main() -> None:
    """Compare both, behind a call that loads what the first one needs."""
    await Agent(ScriptedEngine([call("look", place="Lima"), say("Ready.")]), [tool(look)]).run(
        "Hi."
    )
    print("waiting for each lookup:")
    waited = await timed(background=False)
    print("lookups in the background:")
    went_on = await timed(background=True)
    print(f"{waited:.1f} s and {went_on:.1f} s: the sum of the lookups, and the slowest of them")


if __name__ == "__main__":
    asyncio.run(main())
