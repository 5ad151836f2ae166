"""The implementation of `caesura tools`: the table of tools, and real calls of them."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.terminal import Terminal, plain
from caesura.tools.config.caesura_toml import Config
from caesura.tools.config.toolset import BUILTINS, Toolset
from caesura.tools.dispatcher import Dispatcher
from caesura.tools.mcp import MCPServer
from caesura.tools.people import people_of
from caesura.tools.result import ToolCall, ToolResult
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
    for name in toolset.names:
        try:
            reason = toolset.why_off(name)
            if reason is None:
                made[name] = toolset.make(name)
            else:
                why[name] = reason
        except SetupError as error:
            why[name] = str(error)
    rows = [
        _row(made[name], _backend(toolset, name), _about(name, made[name].description))
        if name in made
        else Row(name, False, why[name], "", False, _about(name, "a Python function"))
        for name in toolset.names
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


def _about(name: str, description: str) -> str:
    return BUILTINS[name].about if name in BUILTINS else description


def _backend(toolset: Toolset, name: str) -> str:
    """Return what answers a tool's calls: its back end, or the function."""
    settings = toolset.settings[name]
    return str(getattr(settings, "function", "") or getattr(settings, "backend", ""))


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


SAMPLES: dict[str, dict[str, Any]] = {
    "calculator": {"expression": "2^10"},
    "clock": {"timezone": "Europe/Paris"},
    "search": {"query": "largest planet"},
    "web_search": {"query": "largest planet"},
    "web_fetch": {"url": "https://example.org/"},
    "environment": {"action": "reset"},
    "render_chart": {
        "spec": {
            "mark": "bar",
            "data": {"values": [{"tree": "oak", "count": 12}, {"tree": "elm", "count": 7}]},
        }
    },
    "render_svg": {
        "svg": "<svg viewBox='0 0 200 200'><circle cx='100' cy='100' r='80' fill='teal'/></svg>"
    },
    "generate_image": {"prompt": "a fox in the snow"},
    "speak": {"text": "Good morning."},
    "ask_model": {"question": "Which planet is the largest?"},
    "ask_user": {"question": "Can you read this?", "options": ["yes", "no"]},
    "python": {"code": "import sys\nprint(sys.version)\n2 ** 100"},
    "shell": {"command": "uname -s; ls"},
    "files": {"action": "list"},
}

console = Console()


async def try_tools(
    name: str, arguments: str | None, config: Path | None, as_json: bool = False
) -> int:
    """Call one tool, or all built-in tools that are on; return the number of errors.

    With `as_json`, print a list of objects instead of lines.

    Raises SetupError for an unknown tool, and for one that cannot be set up.
    """
    read = Config.load(config)
    if name == "all":
        if arguments is not None:
            raise SetupError("`all` takes no arguments: each tool is called with a sample")
        async with read.toolset() as toolset:
            return await _try_all(toolset, as_json)
    # A tool is called even if it is off. Any other name is the name of a server's tool.
    toolset = read.toolset([name] if name in (*BUILTINS, *read.functions) else None)
    async with toolset:
        if name not in toolset.registry:
            raise SetupError(toolset.registry.unknown(name))
        if arguments is None and name not in SAMPLES:
            raise SetupError(
                f"{name} has no sample call: give its arguments, as in"
                f" caesura tools test {name} '{{...}}'"
            )
        reason = _needs_person(toolset, name)
        if reason is not None:
            raise SetupError(f"{name} {reason}")
        result = await _try(toolset, name, arguments or json.dumps(SAMPLES[name]))
    if as_json:
        _print_json([_as_row(name, result)])
    else:
        _print(name, result)
    return int(result.error is not None)


async def _try_all(toolset: Toolset, as_json: bool) -> int:
    skipped: dict[str, str] = {}
    results: dict[str, ToolResult] = {}
    for name in toolset.registry.names:
        if name not in SAMPLES:
            skipped[name] = "not a built-in tool: test it with arguments of your own"
        elif (reason := _needs_person(toolset, name)) is not None:
            skipped[name] = reason
        else:
            results[name] = await _try(toolset, name, json.dumps(SAMPLES[name]))
            if not as_json:
                _print(name, results[name])
    skipped |= toolset.off
    failed = sum(result.error is not None for result in results.values())
    if as_json:
        rows = [_as_row(name, result) for name, result in results.items()]
        _print_json(rows + [{"name": name, "skipped": why} for name, why in skipped.items()])
        return failed
    for name, reason in skipped.items():
        told = escape(f"{name}: {reason}")
        console.print(f"[dim]skipped[/dim] {told}", highlight=False, soft_wrap=True)
    works = f"{len(results) - failed} of {len(results)} work"
    console.print(f"{works}, {len(skipped)} skipped", highlight=False)
    return failed


async def _try(toolset: Toolset, name: str, arguments: str) -> ToolResult:
    """Call a tool; the user at this terminal answers its questions."""
    Terminal(console).answers_for(people_of(toolset.services))
    async with Dispatcher(toolset.registry) as dispatcher:
        return await dispatcher.run(ToolCall("test", name, arguments))


def _as_row(name: str, result: ToolResult) -> dict[str, Any]:
    return {
        "name": name,
        "error": result.error,
        "seconds": result.seconds,
        "content": result.content,
        "artifacts": [str(artifact.path) for artifact in result.artifacts],
    }


def _print_json(rows: list[dict[str, Any]]) -> None:
    print(json.dumps(rows, indent=2))


def _print(name: str, result: ToolResult) -> None:
    verdict = "[green]ok[/green]" if result.error is None else "[red]error[/red]"
    console.print(f"{verdict} {escape(name)}, {result.seconds:.3f} s", highlight=False)
    for line in result.content.splitlines():
        console.print(f"  {plain(line)}", markup=False, highlight=False, soft_wrap=True)
    for artifact in result.artifacts:
        console.print(f"  {artifact.path}", markup=False, highlight=False, soft_wrap=True)


def _needs_person(toolset: Toolset, name: str) -> str | None:
    """Return the reason if the tool needs a person but stdin is not a terminal, else None."""
    tool = toolset.registry.get(name)
    if tool is None or not (tool.approval or tool.waits_for_person) or sys.stdin.isatty():
        return None
    return "needs a person at a terminal"
