"""`caesura demo`: a dozen concurrent questions to the real engine, then every tool once."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from pathlib import Path

from rich.console import Console

from caesura.runtime.cli.demo.board import Board, Row
from caesura.runtime.cli.demo.game import play_to_the_end
from caesura.runtime.cli.demo.services import population, price, weather
from caesura.runtime.cli.demo.tour import TOUR, Stop, tour
from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.options import Traces
from caesura.runtime.cli.recording import recorded
from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.sdk.agent import Agent
from caesura.scheduler.messages import Sampling
from caesura.tools import Tool
from caesura.tools.config.caesura_toml import Config

QUESTIONS = (
    "What is 48 * 17?",
    "I have 12 boxes of 7 eggs. How many eggs do I have?",
    "What is 1250 / 8 and what is 391 + 46?",
    "How much do 7 lamps cost?",
    "What is the weather in Paris and in Rome?",
    "How many people live in Oslo?",
    "What time is it in Tokyo?",
    "Write a sentence about 15 boxes of 24 pencils.",
    "Write a sentence about 9 bags of 13 apples.",
    "What is 7 / 0?",
    "Who are you?",
    "What is the weather in Atlantis?",
)

PLAIN_WIDTH = 132
"""The columns of the output if it is not a terminal."""


async def show(
    stops: Sequence[Stop] = TOUR, trace: Path | None = None, title: str | None = None
) -> None:
    """Run the demo, and record it in `trace` if given, under a title if given.

    Raises `EngineFailed` and `UsageError`.
    """
    traces = Traces.into(trace, title)
    traces.check()
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    async with (
        engine_on(None, None, ()) as engine,
        recorded(engine, traces, Config(), "caesura demo", "sdk") as recorder,
    ):
        await ask_all(engine, console, recorder)
        files = await tour(engine, stops, console, recorder)
    await play_to_the_end(console)
    for what, path in files:
        console.print(f"{what}: [bold]{path}[/bold]", highlight=False, soft_wrap=True)


async def ask_all(
    engine: Engine, console: Console, recorder: Recorder | None = None
) -> Sequence[Row]:
    """Ask all questions at once, print a table of the requests, and return its rows."""
    tools: list[Tool | str] = ["calculator", "clock", weather, price, population]
    board = Board(console, QUESTIONS)
    started = time.monotonic()
    sampling = Sampling(max_tokens=120)
    async with Agent(engine, tools, sampling=sampling, recorder=recorder) as agent:
        with board.live or nullcontext():
            await asyncio.gather(*(_ask(agent, board, row) for row in board.rows))
    seconds = time.monotonic() - started
    console.print(board.report())
    pauses = sum(len(row.resumes) for row in board.rows)
    console.print(
        f"{len(board.rows)} requests at once, {pauses} pauses inside the engine, {seconds:.1f} s."
        " The weather, prices and populations are made up, with the delay of a real service.",
        style="dim",
    )
    return board.rows


async def _ask(agent: Agent, board: Board, row: Row) -> None:
    try:
        async with aclosing(agent.stream(row.question)) as events:
            async for event in events:
                board.take(row, event)
    except CaesuraError as error:
        row.state, row.error = "failed", str(error)
