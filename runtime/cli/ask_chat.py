"""`caesura ask` and `caesura chat`."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.options import ModelOptions, Traces
from caesura.runtime.cli.terminal import Printer, Terminal
from caesura.runtime.errors import CaesuraError
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.session import Session
from caesura.runtime.tracing.recorded import recorded
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import people_of

console = Console()


async def ask_once(
    question: str,
    source: ModelOptions,
    tools: Sequence[str] | None,
    trace: Path | None = None,
    title: str | None = None,
) -> None:
    """Ask one question, and print the run's events."""
    read, traces = Config.load(source.config), Traces.into(trace, title)
    traces.check()
    async with (
        read.toolset(tools) as toolset,
        engine_on(source.engine()) as engine,
        recorded(engine, traces, read, "caesura ask", "sdk") as recorder,
    ):
        Terminal(console).answers_for(people_of(toolset.services))
        limits = configured_limits(read.limits)
        agent = Agent(engine, toolset.registry, limits=limits, recorder=recorder)
        async with agent.session() as session:
            await _say(session, question)


async def converse(
    source: ModelOptions,
    tools: Sequence[str] | None,
    system: str | None,
    trace: Path | None = None,
    title: str | None = None,
) -> None:
    """Answer questions from the terminal until the end of its input."""
    read, traces = Config.load(source.config), Traces.into(trace, title)
    traces.check()
    async with (
        read.toolset(tools) as toolset,
        engine_on(source.engine()) as engine,
        recorded(engine, traces, read, "caesura chat", "sdk") as recorder,
    ):
        Terminal(console).answers_for(people_of(toolset.services))
        agent = Agent(
            engine,
            toolset.registry,
            instructions=system,
            limits=configured_limits(read.limits),
            recorder=recorder,
        )
        names = ", ".join(toolset.registry.names)
        console.print(f"{engine.model}, tools: {names}. Ctrl-D ends.", style="dim")
        async with agent.session() as session:
            while (line := await _read_line()) is not None:
                if not line.strip():
                    continue
                try:
                    await _say(session, line)
                except CaesuraError as error:
                    console.print(f"[red]error:[/red] {escape(str(error))}", highlight=False)


async def _say(session: Session, text: str) -> None:
    printer = Printer(console)
    async with aclosing(session.stream(text)) as events:
        async for event in events:
            printer.show(event)


async def _read_line() -> str | None:
    try:
        return await asyncio.to_thread(console.input, "[bold]> [/bold]")
    except EOFError:
        return None
