"""A game of ALFWorld that a scripted player plays to its end through the real tool."""

from contextlib import aclosing

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.demo.player import PROMPT, play
from caesura.runtime.cli.show import shorten
from caesura.runtime.errors import CaesuraError
from caesura.runtime.events import CallFinished, TextDelta, ToolReturned
from caesura.runtime.run.limits import Limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.testing import ScriptedEngine

LIMITS = Limits(max_turns=60)
CONTEXT_TOKENS = 100_000


async def play_to_the_end(console: Console) -> None:
    """Play a game, and print each thought, action and observation on a line."""
    console.print(
        "\nA game of ALFWorld, played by a script that reads the tool's results:", style="bold"
    )
    thought, last = "", ""
    engine = ScriptedEngine(play, context_tokens=CONTEXT_TOKENS)
    try:
        agent = Agent(engine, ["environment"], limits=LIMITS)
        async with agent, aclosing(agent.stream(PROMPT)) as events:
            async for event in events:
                match event:
                    case TextDelta(text=text):
                        thought += text
                    case CallFinished(arguments=arguments):
                        _line(
                            console, f"[cyan]{escape(thought.strip())}[/cyan] {escape(arguments)}"
                        )
                        thought = ""
                    case ToolReturned(result=result):
                        last = result.content
                        seen = " ".join(last.rpartition("\n")[0].split())
                        _line(console, f"[dim]{escape(shorten(seen, console.width - 6))}[/dim]")
                    case _:
                        pass
    except CaesuraError as error:
        console.print(f"environment: {error}", style="yellow", markup=False, soft_wrap=True)
        return
    _line(console, f"[bold]{escape(last.rpartition(chr(10))[2])}[/bold]")


def _line(console: Console, markup: str) -> None:
    console.print(f"  {markup}", highlight=False, soft_wrap=True)
