"""`caesura ask` and `caesura chat`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.options import ModelOptions, Traces
from caesura.runtime.cli.terminal import Printer, Terminal
from caesura.runtime.engine import Engine
from caesura.runtime.errors import CaesuraError, UsageError
from caesura.runtime.run.limits import configured_limits
from caesura.runtime.sdk.agent import Agent
from caesura.runtime.sdk.configured import ConfiguredAgents, python_agents
from caesura.runtime.sdk.engines import ENGINES
from caesura.runtime.sdk.session import Session
from caesura.runtime.tracing.recorded import recorded
from caesura.tools.config.caesura_toml import Config
from caesura.tools.people import people_of

console = Console()


@dataclass(frozen=True, slots=True)
class Asked:
    """Who answers: a model with tools, or an agent of the configuration."""

    source: ModelOptions
    tools: Sequence[str] | None = None
    agent: str | None = None
    system: str | None = None

    def names(self, config: Config) -> Sequence[str] | None:
        """Return the tools that are needed; None: all that are enabled.

        Raises `UsageError` for options that exclude each other, and SetupError for an unknown
        agent.
        """
        if self.agent is None:
            return self.tools
        for option, given in (("--tool", self.tools), ("--system", self.system)):
            if given:
                raise UsageError(
                    f"{option} is given beside --agent {self.agent}, which has its own: leave one"
                    " of the two out"
                )
        return config.tools_of(self.agent)


@asynccontextmanager
async def opened(
    asked: Asked, command: str, trace: Path | None = None, title: str | None = None
) -> AsyncIterator[tuple[Agent[str], Engine]]:
    """Start an engine and tools; yield who answers."""
    read, traces = Config.load(asked.source.config), Traces.into(trace, title)
    traces.check()
    names = asked.names(read)
    if asked.agent is not None:
        python_agents(read, asked.agent)  # a mistake in them is told before the engine starts
    async with (
        read.toolset(names) as toolset,
        engine_on(asked.source.engine()) as engine,
        recorded(engine, traces, read, command, "sdk") as recorder,
        ENGINES.lent(engine),
    ):
        Terminal(console).answers_for(people_of(toolset.services))
        if asked.agent is not None:
            made = ConfiguredAgents(read, toolset, engine, recorder, asked.agent)
            agent = made.agent(asked.agent)
        else:
            agent = Agent(
                engine,
                toolset.registry,
                instructions=asked.system,
                limits=configured_limits(read.limits),
                recorder=recorder,
            )
        yield agent, engine


@asynccontextmanager
async def evaluated(source: ModelOptions, agent: str) -> AsyncIterator[Agent[str]]:
    """Start an engine and tools; yield an agent of the configuration, for an evaluation."""
    async with opened(Asked(source, agent=agent), "caesura eval") as (made, _):
        yield made


async def ask_once(
    question: str, asked: Asked, trace: Path | None = None, title: str | None = None
) -> None:
    """Ask one question, and print the run's events."""
    async with (
        opened(asked, "caesura ask", trace, title) as (agent, _),
        agent.session() as session,
    ):
        await _say(session, question)


async def converse(asked: Asked, trace: Path | None = None, title: str | None = None) -> None:
    """Answer questions from the terminal until the end of its input."""
    async with opened(asked, "caesura chat", trace, title) as (agent, engine):
        names = ", ".join(tool.name for tool in agent.tools) or "none"
        who = engine.model if agent.name is None else f"{agent.name} on {engine.model}"
        console.print(f"{who}, tools: {names}. Ctrl-D ends.", style="dim", highlight=False)
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
