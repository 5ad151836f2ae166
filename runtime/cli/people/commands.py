"""`caesura people`: what waits for a person at a running server, and the answers."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from caesura.runtime.cli.errors import mistakes_told

app = typer.Typer(
    help="Answer what the tools of a running server ask.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Url = Annotated[
    str, typer.Option("--url", envvar="CAESURA_URL", help="Where `caesura serve` listens.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="CAESURA_API_KEY", help="The server's key.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="As `caesura people ls` shows it.")]
Who = Annotated[str, typer.Option("--who", help="Your name, kept with the answer.")]

HERE = "http://127.0.0.1:8000"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command; a mistake is a line."""
    with mistakes_told():
        asyncio.run(work)


@app.command("ls")
def list_items(
    url: Url = HERE,
    api_key: ApiKey = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also what is settled already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List what waits for a person."""
    from caesura.runtime.cli.people import pending

    run(pending.list_items(url, api_key, everything, as_json))


@app.command()
def show(item: Id, url: Url = HERE, api_key: ApiKey = None) -> None:
    """Show all of a question, or of a call to approve."""
    from caesura.runtime.cli.people import pending

    run(pending.show_item(url, api_key, item))


@app.command()
def answer(
    item: Id,
    text: Annotated[str, typer.Argument(help="The answer.")],
    url: Url = HERE,
    api_key: ApiKey = None,
    who: Who = "",
) -> None:
    """Answer a question."""
    from caesura.runtime.cli.people import pending

    run(pending.say(url, api_key, item, answer=text, who=who))


@app.command()
def approve(item: Id, url: Url = HERE, api_key: ApiKey = None, who: Who = "") -> None:
    """Let a tool be called."""
    from caesura.runtime.cli.people import pending

    run(pending.say(url, api_key, item, approve=True, who=who))


@app.command()
def deny(
    item: Id,
    reason: Annotated[str, typer.Option(help="Why not; the model is told.")] = "",
    url: Url = HERE,
    api_key: ApiKey = None,
    who: Who = "",
) -> None:
    """Do not let a tool be called."""
    from caesura.runtime.cli.people import pending

    run(pending.say(url, api_key, item, approve=False, reason=reason, who=who))


@app.command()
def watch(
    url: Url = HERE,
    api_key: ApiKey = None,
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the answers here.")] = False,
) -> None:
    """Show questions as they come, until the server ends."""
    from caesura.runtime.cli.people import pending

    run(pending.watch(url, api_key, ask))
