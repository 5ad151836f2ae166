"""`caesura people`: the items that wait for a person at a running server, and their answers."""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from caesura.runtime.cli.errors import mistakes_told

app = typer.Typer(
    help="Answer the questions of a running server's tools, and approve their calls.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Url = Annotated[
    str, typer.Option("--url", envvar="CAESURA_URL", help="The address of `caesura serve`.")
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", envvar="CAESURA_API_KEY", help="The server's key.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The id that `caesura people ls` shows.")]
Who = Annotated[str, typer.Option("--who", help="Your name, which is stored with the answer.")]

HERE = "http://127.0.0.1:8000"


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a command; print a known error as one line."""
    with mistakes_told():
        asyncio.run(work)


@app.command("ls")
def list_items(
    url: Url = HERE,
    api_key: ApiKey = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include settled items.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the items that wait for a person."""
    from caesura.runtime.cli import pending

    run(pending.list_items(url, api_key, everything, as_json))


@app.command()
def show(item: Id, url: Url = HERE, api_key: ApiKey = None) -> None:
    """Show all fields of a question or of a call to approve."""
    from caesura.runtime.cli import pending

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
    from caesura.runtime.cli import pending

    run(pending.say(url, api_key, item, answer=text, who=who))


@app.command()
def approve(item: Id, url: Url = HERE, api_key: ApiKey = None, who: Who = "") -> None:
    """Approve a tool call."""
    from caesura.runtime.cli import pending

    run(pending.say(url, api_key, item, approve=True, who=who))


@app.command()
def deny(
    item: Id,
    reason: Annotated[str, typer.Option(help="The reason, which the model sees.")] = "",
    url: Url = HERE,
    api_key: ApiKey = None,
    who: Who = "",
) -> None:
    """Deny a tool call."""
    from caesura.runtime.cli import pending

    run(pending.say(url, api_key, item, approve=False, reason=reason, who=who))


@app.command()
def watch(
    url: Url = HERE,
    api_key: ApiKey = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask for the answers in this terminal.")
    ] = False,
) -> None:
    """Show questions as they come, until the server ends."""
    from caesura.runtime.cli import pending

    run(pending.watch(url, api_key, ask))
