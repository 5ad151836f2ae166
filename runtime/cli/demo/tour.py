"""A tour of the built-in tools, each called once by the bundled model."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.show import describe_call, shorten
from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError
from caesura.runtime.events import CallFinished, RunEnded, ToolReturned
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import Pending

CONFIG = Config(tools={"search": {"corpus": "bundled", "results": 1, "result_tokens": 60}})
"""One short passage per search, since a model of this size cannot use more."""
REPLY = "green"
"""The demo's answer to the model's question."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One question, and the tool that it shows."""

    tool: str
    question: str


TOUR = (
    Stop("calculator", "What is 2^16?"),
    Stop("clock", "What time is it in Tokyo?"),
    Stop("search", "Who built the Pantheon?"),
    Stop("render_chart", "Draw a bar chart of oak 12, pine 7 and birch 9."),
    Stop("render_svg", "Draw a red circle."),
    Stop("speak", "Say 'good morning' aloud."),
    Stop("ask_user", "Ask the user which colour they like."),
    Stop("environment", "Start a new game and tell me the task."),
)


async def tour(
    engine: Engine, stops: Sequence[Stop], console: Console, recorder: Recorder | None = None
) -> list[tuple[str, Path]]:
    """Ask one question per tool; return the files that tools made, with their questions."""
    console.print("\nEvery tool once, called by the bundled model:", style="bold")
    files: list[tuple[str, Path]] = []
    for stop in stops:
        try:
            files += await _visit(engine, stop, console, recorder)
        except CaesuraError as error:
            console.print(f"{stop.tool}: {error}", style="yellow", markup=False, soft_wrap=True)
    console.print(
        "generate_image needs a model's weights or a service: see docs/tools/pictures.md.",
        style="dim",
    )
    return files


async def _visit(
    engine: Engine, stop: Stop, console: Console, recorder: Recorder | None
) -> list[tuple[str, Path]]:
    """Ask one question; print the call, its result and the answer. Raises `Agent`'s errors."""
    files: list[tuple[str, Path]] = []
    agent = Agent(
        engine,
        [stop.tool],
        config=CONFIG,
        sampling=Sampling(max_tokens=160),
        on_question=_reply,
        recorder=recorder,
    )
    async with agent, aclosing(agent.stream(stop.question)) as events:
        console.print(f"[bold]{escape(stop.question)}[/bold]", highlight=False)
        async for event in events:
            match event:
                case CallFinished(name=name, arguments=arguments):
                    _line(console, "cyan", "call", describe_call(name, arguments))
                case ToolReturned(result=result):
                    _line(console, "yellow" if result.error else "green", "result", result.content)
                    files += [(stop.question, made.path) for made in result.artifacts]
                case RunEnded(text=text):
                    _line(console, "white", "answer", text)
                case _:
                    pass
    return files


def _reply(item: Pending) -> str:
    return REPLY


def _line(console: Console, colour: str, what: str, text: str) -> None:
    shown = escape(shorten(" ".join(text.split()), console.width - 12))
    console.print(f"  [{colour}]{what:6}[/{colour}] {shown}", highlight=False, soft_wrap=True)
