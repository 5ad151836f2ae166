"""`caesura ask` and `caesura chat`."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from rich.console import Console

from caesura.runtime.agent import Agent, as_tool
from caesura.runtime.cli.engine import engine_on
from caesura.runtime.cli.show import Printer
from caesura.runtime.errors import CaesuraError
from caesura.runtime.session import Session
from caesura.tools import Tool, builtin

console = Console()


async def ask_once(
    question: str,
    model: str | None,
    tools: Sequence[str] | None,
    formats: Sequence[str] | None,
    vllm_args: Sequence[str],
) -> None:
    """Ask, print what happens, and stop."""
    chosen = _choose(tools)
    async with engine_on(model, formats, vllm_args) as engine:
        agent = Agent(engine, chosen)
        async with agent.session() as session:
            await _say(session, question)


async def converse(
    model: str | None,
    tools: Sequence[str] | None,
    formats: Sequence[str] | None,
    system: str | None,
    vllm_args: Sequence[str],
) -> None:
    """Read questions from the terminal until it ends."""
    chosen = _choose(tools)
    async with engine_on(model, formats, vllm_args) as engine:
        agent = Agent(engine, chosen, instructions=system)
        names = ", ".join(each.name for each in chosen)
        console.print(f"{engine.model}, tools: {names}. Ctrl-D ends.", style="dim")
        async with agent.session() as session:
            while (line := await _read_line()) is not None:
                if not line.strip():
                    continue
                try:
                    await _say(session, line)
                except CaesuraError as error:
                    console.print(f"[red]error:[/red] {error}")


def _choose(names: Sequence[str] | None) -> list[Tool]:
    """Find the tools before the engine starts: a wrong name is told at once."""
    return [as_tool(name) for name in (builtin() if names is None else names)]


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
