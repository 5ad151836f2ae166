"""A conversation, event by event: text as it is decoded, tools as they start and return.

    python examples/02_streaming_and_tools.py

The two lookups of the first question run at the same time, each from the moment its call is
written. After every pause the engine reports how the request came back.
"""

import asyncio

from caesura.runtime.events import (
    CallFinished,
    CallMalformed,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReturned,
    TurnEnded,
)
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.session import Session
from caesura.scheduler.messages import Sampling
from caesura.tools import tool

WEATHER = {"Paris": "18 degrees and sunny", "Oslo": "3 degrees and snow"}


@tool(timeout_seconds=5, retries=1, safe_to_repeat=True)
async def weather(city: str) -> str:
    """Get the current weather.

    Args:
        city: its name in English.
    """
    await asyncio.sleep(0.5)  # a slow service
    return WEATHER[city]  # an unknown city is an error that the model is told


def show(event: RunEvent) -> None:
    match event:
        case TextDelta(text=text):
            print(text, end="", flush=True)
        case CallFinished(name=name, arguments=arguments):
            print(f"\n  -> {name} {arguments}")
        case CallMalformed(text=text, reason=reason):
            print(f"\n  -> not a call ({reason}): {text}")
        case ToolReturned(call=call, result=result):
            print(f"  <- {call.name}: {result.content} ({result.seconds:.2f} s)")
        case TurnEnded(resume=resume) if resume is not None:
            pause, tokens = resume.pause_seconds, resume.context_tokens
            print(f"\n  paused {pause:.2f} s; {resume.cached_tokens} of {tokens} tokens kept")
        case RunEnded(reason=reason, usage=usage):
            print(f"\n  [{reason}: {usage.completion_tokens} tokens in {usage.turns} turns]\n")
        case _:
            pass


async def ask(session: Session, prompt: str) -> None:
    print(f"> {prompt}")
    async for event in session.stream(prompt):
        show(event)


async def main() -> None:
    agent = Agent(
        tools=[weather, "calculator", "clock"],
        instructions="You are a helpful assistant.",
        sampling=Sampling(temperature=0.0),
        limits=Limits(max_turns=8, max_seconds=60),
    )
    async with agent, agent.session() as session:
        await ask(session, "What is the weather in Paris and in Oslo?")
        await ask(session, "Write a sentence about 12 boxes of 7 lamps.")
        await ask(session, "What is the weather in Atlantis?")


if __name__ == "__main__":
    asyncio.run(main())
