"""`caesura tools`: lists the tools, and tests whether they work here."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from caesura.runtime.cli.errors import mistakes_told
from caesura.runtime.cli.options import ConfigFile

app = typer.Typer(
    help="List the tools, and test them.", no_args_is_help=True, rich_markup_mode="rich"
)


@app.command("list")
def list_tools(
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List every tool: whether and why it is off, its back end, and its limits."""
    from caesura.runtime.cli.tool_calls import show

    with mistakes_told():
        asyncio.run(show(config, as_json))


@app.command("test")
def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A tool's name, or `all`.")],
    arguments: Annotated[
        str | None,
        typer.Argument(
            metavar="ARGUMENTS_JSON", help="Default: a sample call, for built-in tools."
        ),
    ] = None,
    config: ConfigFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Call a tool once, as for a model; the exit code is 1 if the result is an error."""
    from caesura.runtime.cli.tool_calls import try_tools

    with mistakes_told():
        failed = asyncio.run(try_tools(name, arguments, config, as_json))
        if failed:
            raise typer.Exit(1)


@app.command("trust")
def trust_here() -> None:
    """Allow the caesura.toml of this directory, as it is now, to run what it names."""
    from caesura.tools.config.caesura_toml import FILE, Config, trust

    with mistakes_told():
        config = Config.load(Path(FILE))
        assert config.path is not None
        trust(config.path, config.digest)
    names = ", ".join(config.servers) or "none"
    functions = ", ".join(config.functions) or "none"
    agents = ", ".join(name for name, each in config.agents.items() if each.agent) or "none"
    typer.echo(
        f"{config.path} is allowed until it changes; its MCP servers: {names}; its functions:"
        f" {functions}; its agents of Python: {agents}"
    )
