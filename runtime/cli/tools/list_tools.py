"""The table of `caesura tools list`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.show import plain
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.mcp import MCPServer
from caesura.tools.services import SetupError
from caesura.tools.source import Combined, ToolSource
from caesura.tools.tool import Tool

PLAIN_WIDTH = 132
"""The columns of the output if it is not a terminal."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tool, or an MCP server that does not answer."""

    name: str
    on: bool
    why_off: str
    backend: str
    approval: bool
    about: str
    timeout_seconds: float | None = None
    retries: int = 0
    concurrency: int | None = None
    max_result_tokens: int | None = None
    breaker: int | None = None


async def show(config: Path | None, as_json: bool) -> None:
    """Print the tools; raise SetupError for an unreadable configuration."""
    toolset = Config.load(config).toolset()
    try:
        rows = await _rows(toolset)
    finally:
        await toolset.aclose()
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, PLAIN_WIDTH)
    console.print(_table(rows))
    for row in rows:
        if row.why_off:
            console.print(
                f"[yellow]{escape(row.name)}[/yellow]: {escape(row.why_off)}",
                highlight=False,
                soft_wrap=True,
            )


async def _rows(toolset: Toolset) -> list[Row]:
    made: dict[str, Tool] = {}
    why: dict[str, str] = {}
    for name in BUILTINS:
        try:
            reason = toolset.why_off(name)
            if reason is None:
                made[name] = toolset.make(name)
            else:
                why[name] = reason
        except SetupError as error:
            why[name] = str(error)
    rows = [
        _row(made[name], _backend(toolset, name), BUILTINS[name].about)
        if name in made
        else Row(name, False, why[name], "", False, BUILTINS[name].about)
        for name in BUILTINS
    ]
    silent = [row for source in toolset.sources if (row := await _start(toolset, source))]
    combined = Combined(made.values(), toolset.sources)
    served = combined.tools()[len(made) :]
    rows += [_row(tool, f"MCP {combined.origins[tool.name]}", tool.description) for tool in served]
    return rows + silent


async def _start(toolset: Toolset, source: ToolSource) -> Row | None:
    """Start an MCP server; return a row with the reason if it does not answer, else None."""
    try:
        await source.start()
    except SetupError as error:
        return Row(source.name, False, str(error), "MCP", False, "an MCP server")
    toolset.services.at_end(source.aclose)
    if isinstance(source, MCPServer) and source.trouble is not None:
        return Row(source.name, False, source.trouble, "MCP", False, "an MCP server")
    return None


def _row(tool: Tool, backend: str, about: str) -> Row:
    return Row(
        name=tool.name,
        on=True,
        why_off="",
        backend=backend,
        approval=tool.approval,
        about=" ".join(plain(about).split())[:200],
        timeout_seconds=tool.timeout_seconds,
        retries=tool.retries,
        concurrency=tool.concurrency,
        max_result_tokens=tool.max_result_tokens,
        breaker=tool.breaker,
    )


def _backend(toolset: Toolset, name: str) -> str:
    return str(getattr(toolset.settings[name], "backend", ""))


def _table(rows: list[Row]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("tool", "", "back end", "approval", "limits", "about"):
        table.add_column(column, no_wrap=column == "tool", max_width=48)
    for row in rows:
        table.add_row(
            escape(row.name),
            "[green]on[/green]" if row.on else "[dim]off[/dim]",
            escape(row.backend),
            "asks" if row.approval else "",
            _limits(row) if row.on else "",
            escape(row.about[:90]),
        )
    return table


def _limits(row: Row) -> str:
    said: list[tuple[Any, str]] = [
        (row.timeout_seconds, "s"),
        (row.concurrency, "at a time"),
        (row.max_result_tokens, "tokens"),
        (row.retries or None, "retries"),
        (row.breaker, "failures"),
    ]
    return ", ".join(f"{value:g} {unit}" for value, unit in said if value is not None)
