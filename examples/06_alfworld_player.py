"""Games of ALFWorld, played to their end in processes of their own.

    pip install -e '.[alfworld]'           # needs a C++ compiler, and make
    python examples/06_alfworld_player.py                     # a scripted player, one game
    python examples/06_alfworld_player.py --games 20 --tasks pick_and_place_simple
    python examples/06_alfworld_player.py --model Qwen/Qwen3-8B

The scripted player stands in for a model: it reads what the tool says, and nothing else. The
session, the loop, the dispatcher and the process that plays are the ones that a model would use.
"""

import argparse
import asyncio
from contextlib import aclosing

from caesura.runtime.cli.game import PROMPT, play
from caesura.runtime.errors import LimitReached
from caesura.runtime.events import CallFinished, RunEvent, TextDelta, ToolReturned
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine
from caesura.tools.config.caesura_toml import Config

INSTRUCTIONS = (
    "You play a text game with the tool environment. Call it with the action reset, read the task, "
    "and then do one of the actions that it lists, until it says Done."
)


def show(event: RunEvent) -> None:
    match event:
        case TextDelta(text=text):
            print(text, end="", flush=True)
        case CallFinished(arguments=arguments):
            print(f"\n  -> {arguments}")
        case ToolReturned(result=result):
            print("     " + result.content.replace("\n", "\n     "))
        case _:
            pass


async def play_one(agent: Agent, loud: bool) -> tuple[bool, int]:
    """Whether a game was won, and in how many calls."""
    calls, last = 0, ""
    try:
        async with agent.session() as session, aclosing(session.stream(PROMPT)) as events:
            async for event in events:
                if loud:
                    show(event)
                if isinstance(event, ToolReturned):
                    calls, last = calls + 1, event.result.content
    except LimitReached as error:
        print(f"\n{error}")
    return last.endswith("Done: won"), calls


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="a model that plays; without it, the scripted player does")
    parser.add_argument("--games", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", nargs="*", help="kinds of tasks, as ALFWorld names them")
    asked = parser.parse_args()
    settings = {"seed": asked.seed, "games": asked.games}
    if asked.tasks:
        settings["task_types"] = asked.tasks
    agent = Agent(
        asked.model or ScriptedEngine(play, context_tokens=100_000),
        ["environment"],
        config=Config(tools={"environment": settings}),
        instructions=INSTRUCTIONS,
        limits=Limits(max_turns=60),
    )
    won = 0
    async with agent:
        for number in range(asked.games):
            is_won, calls = await play_one(agent, loud=asked.games == 1)
            won += is_won
            print(f"\ngame {number}: {'won' if is_won else 'lost'} after {calls} calls")
    print(f"{won} of {asked.games} won")


if __name__ == "__main__":
    asyncio.run(main())
