"""The commands and their options; each command's work is in a file of its own."""

import asyncio
import os
import sys
from collections.abc import Coroutine
from typing import Annotated, Any

import typer
from rich.console import Console

from caesura import __version__
from caesura.runtime.errors import CaesuraError

app = typer.Typer(
    name="caesura",
    help="Ask, chat with and serve tool-calling models whose requests pause at a call and go on.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
errors = Console(stderr=True)

Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Hugging Face id or directory. Default: the bundled one."),
]
Formats = Annotated[
    list[str] | None,
    typer.Option("--format", help="How it writes calls. Default: as its template says."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", "-t", help="A built-in tool; repeat for more. Default: all of them."),
]
VllmArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- VLLM_OPTIONS", help="Options of `vllm serve`, behind `--`."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show vLLM's own log.")]


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a command; a user's mistake is a line and not a stack trace."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        errors.print("interrupted", style="dim")
        raise typer.Exit(130) from None
    except CaesuraError as error:
        errors.print(f"[red]error:[/red] {error}", highlight=False)
        raise typer.Exit(1) from None


def set_log_level(verbose: bool) -> None:
    """Show vLLM's log if it is asked for; vLLM reads this when it is imported."""
    if verbose:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "INFO")


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Ask, chat with and serve tool-calling models whose requests pause at a call and go on."""
    if version:
        typer.echo(f"caesura {__version__}")
        raise typer.Exit


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="What to ask.")],
    vllm_args: VllmArgs = None,
    model: Model = None,
    tool: Tools = None,
    format: Formats = None,
    verbose: Verbose = False,
) -> None:
    """Ask one question, and watch the calls that it takes."""
    set_log_level(verbose)
    from caesura.runtime.cli.talk import ask_once

    run(ask_once(question, model, tool, format, vllm_args or []))


@app.command()
def chat(
    vllm_args: VllmArgs = None,
    model: Model = None,
    tool: Tools = None,
    format: Formats = None,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    verbose: Verbose = False,
) -> None:
    """Talk with a model in the terminal."""
    set_log_level(verbose)
    from caesura.runtime.cli.talk import converse

    run(converse(model, tool, format, system, vllm_args or []))


@app.command()
def serve(
    vllm_args: VllmArgs = None,
    model: Model = None,
    served_model_name: Annotated[
        str | None,
        typer.Option(help="The model's name for clients. Default: from --model."),
    ] = None,
    format: Formats = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    api_key: Annotated[
        str | None, typer.Option(envvar="CAESURA_API_KEY", help="Key that clients must send.")
    ] = None,
    max_concurrent: Annotated[int, typer.Option(help="Requests in flight before a 429.")] = 1024,
    verbose: Verbose = False,
) -> None:
    """Serve an OpenAI-style endpoint, with tools that run inside the request."""
    set_log_level(verbose)
    from caesura.runtime.cli.serving import serve_model

    run(
        serve_model(
            model,
            served_model_name,
            format,
            vllm_args or [],
            host=host,
            port=port,
            api_key=api_key,
            max_concurrent=max_concurrent,
        )
    )


@app.command()
def demo(verbose: Verbose = False) -> None:
    """Ask the bundled model a dozen questions at once, and watch it pause and resume."""
    set_log_level(verbose)
    from caesura.runtime.cli.demo import show

    run(show())


@app.command()
def doctor() -> None:
    """Check that everything Caesura needs is there, and say the mend for what is not."""
    from caesura.runtime.cli.doctor import examine

    raise typer.Exit(examine())


def main() -> None:
    """Run the command line."""
    try:
        app()
    except BrokenPipeError:
        # Whoever reads our output has left; there is nobody to tell.
        sys.stderr.close()
        raise SystemExit(1) from None
