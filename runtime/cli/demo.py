"""`caesura demo`: a dozen concurrent questions to the real engine, then every tool once.

Three tools stand for remote services and are made up; a tour calls the built-in ones.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.game import play_to_the_end
from caesura.runtime.cli.options import Traces
from caesura.runtime.cli.terminal import describe_call, describe_resume, shorten
from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError
from caesura.runtime.events import (
    CallFinished,
    ResumeReport,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReturned,
    TurnEnded,
    Usage,
)
from caesura.runtime.recording.recorder import Recorder
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.tracing.recorded import recorded
from caesura.scheduler.engine_options import EngineOptions
from caesura.scheduler.messages import Sampling
from caesura.tools import Tool, tool
from caesura.tools.config.caesura_toml import Config
from caesura.tools.errors import ToolError
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
        "generate_image needs a model's weights or a service: see docs/guides/tools/pictures.md.",
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


@dataclass
class Row:
    """The state of one request."""

    number: int
    question: str
    state: str = "waiting"
    text: str = ""
    calls: list[str] = field(default_factory=list)
    resumes: list[ResumeReport] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


class Board:
    """Shows all requests: a live table on a terminal, a line per event elsewhere."""

    def __init__(self, console: Console, questions: Sequence[str]) -> None:
        self.rows = [Row(number, question) for number, question in enumerate(questions, 1)]
        self._console = console
        self._started = time.monotonic()
        self.live = (
            Live(get_renderable=self.progress, console=console, refresh_per_second=12)
            if console.is_terminal
            else None
        )

    def take(self, row: Row, event: RunEvent) -> None:
        """Add an event of one request."""
        match event:
            case TextDelta(text=text):
                row.state, row.text = "decoding", row.text + text
            case CallFinished(name=name, arguments=arguments):
                call = describe_call(name, arguments)
                row.calls.append(call)
                self._line(row, f"[cyan]call[/cyan]   {escape(call)}")
            case ToolReturned(result=result):
                colour = "green" if result.error is None else "yellow"
                shown = escape(shorten(result.content, 80))
                self._line(row, f"[{colour}]result[/{colour}] {shown}")
            case TurnEnded(reason="call"):
                self._resumed(row, event)
                row.state = "paused"
                self._line(row, "pause")
            case TurnEnded():
                self._resumed(row, event)
            case RunEnded(text=text, usage=usage):
                row.state, row.text, row.usage = "done", text, usage
                self._line(row, f"[bold]answer[/bold] {escape(shorten(text, 100))}")
            case _:
                row.state = "decoding"

    def report(self) -> Table:
        """Return the final table."""
        table = Table(title="What each request did", show_lines=False, pad_edge=False)
        table.add_column("#", justify="right")
        table.add_column("question", max_width=32)
        table.add_column("calls", max_width=34)
        for column in ("pause ms", "tokens", "cached at resume"):
            table.add_column(column, justify="right")
        table.add_column("answer", max_width=48)
        for row in self.rows:
            pauses = " ".join(f"{resume.pause_seconds * 1000:.0f}" for resume in row.resumes)
            cached = " ".join(f"{r.cached_tokens}/{r.context_tokens}" for r in row.resumes)
            table.add_row(
                str(row.number),
                escape(row.question),
                escape("\n".join(row.calls)),
                pauses,
                str(row.usage.prompt_tokens + row.usage.completion_tokens),
                cached,
                escape(shorten(row.error or row.text, 120)),
            )
        return table

    def _resumed(self, row: Row, event: TurnEnded) -> None:
        if event.resume is not None:
            row.resumes.append(event.resume)
            self._line(row, f"[dim]resumed: {describe_resume(event)}[/dim]")

    def _line(self, row: Row, markup: str) -> None:
        if self.live is None:
            seconds = time.monotonic() - self._started
            self._console.print(
                f"[dim]{seconds:6.2f} s[/dim] {row.number:2d} {markup}",
                highlight=False,
                soft_wrap=True,
            )

    def progress(self) -> Table:
        """Return the live table, with a line per request."""
        colours = {"paused": "cyan", "done": "green", "failed": "red", "waiting": "dim"}
        table = Table(box=None, pad_edge=False)
        table.add_column("#", justify="right", style="dim")
        for column in ("state", "calls", "text"):
            table.add_column(column, no_wrap=True)
        width = max(20, self._console.width - 45)
        for row in self.rows:
            colour = colours.get(row.state, "white")
            called = escape(shorten(row.calls[-1], 28)) if row.calls else ""
            shown = row.text if row.state == "done" else row.text[-width:]
            table.add_row(
                str(row.number),
                f"[{colour}]{row.state}[/{colour}]",
                called,
                escape(shorten(shown or row.question, width)),
            )
        return table


PRICES = {"lamp": 34, "chair": 59, "book": 12, "pen": 2, "table": 140}
POPULATIONS = {"oslo": 717710, "paris": 2102650, "rome": 2748109, "berlin": 3755251}
SKIES = ("clear sky", "light rain", "cloudy", "sunny")


async def _far_away(low: float = 0.3, high: float = 1.2) -> None:
    """Wait as long as a remote service may take; the answers are made up."""
    await asyncio.sleep(random.uniform(low, high))


@tool
async def weather(city: str) -> str:
    """Tell the weather in a city."""
    await _far_away()
    if city.lower() == "atlantis":
        raise ToolError(f"unknown city {city}")
    seed = random.Random(city)
    return f"{seed.randint(2, 29)} degrees, {seed.choice(SKIES)}"


@tool
async def price(item: str) -> int:
    """Look up the price of an item."""
    await _far_away()
    if item.lower() not in PRICES:
        raise ToolError(f"unknown item {item}")
    return PRICES[item.lower()]


@tool
async def population(city: str) -> int:
    """Look up how many people live in a city."""
    await _far_away()
    if city.lower() not in POPULATIONS:
        raise ToolError(f"unknown city {city}")
    return POPULATIONS[city.lower()]


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
        engine_on(EngineOptions()) as engine,
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
