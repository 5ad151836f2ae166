"""The command line: the commands by name. A command is imported when it is called."""

import sys
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from caesura.distribution import version_text

COMMANDS = {
    "ask": ("commands:ask", "Ask the model one question, and print its tool calls and the answer."),
    "chat": ("commands:chat", "Chat with a model in the terminal."),
    "serve": (
        "commands:serve",
        "Serve an OpenAI-style endpoint whose tools run inside the request.",
    ),
    "eval": ("commands:evaluate", "Evaluate an agent; the exit code is 1 if a case fails."),
    "calibrate": (
        "commands:calibrate",
        "Measure the cost of steps on this machine, and the link to host memory.",
    ),
    "demo": (
        "commands:demo",
        "Ask the bundled model a dozen questions at once, and show its pauses and resumes.",
    ),
    "doctor": (
        "commands:doctor",
        "Check the installation, and print how to fix each problem.",
    ),
    "plan": (
        "plan.commands:plan",
        "Plan an application of several models: which run when, on how many devices.",
    ),
    "run": (
        "plan.commands:run",
        "Plan an application of several models, and run the plan on real engines.",
    ),
    "measure": (
        "plan.commands:measure",
        "Measure an application's engines on this machine: loading, steps, memory.",
    ),
    "simulate": (
        "plan.simulate:simulate",
        "Compare policies by simulation: the real scheduler on a simulated machine.",
    ),
    "replay": ("plan.simulate:replay", "Simulate recorded traffic under other policies."),
    "tools": ("tools:app", "List the tools, and test them."),
    "kb": ("kb:app", "Manage corpora of your documents for the search tool."),
    "people": (
        "people:app",
        "Answer the questions of a running server's tools, and approve their calls.",
    ),
    "trace": (
        "trace:app",
        "Show and export recordings: runs, pauses, and the decisions about their KV cache.",
    ),
    "predict": (
        "predict:app",
        "Train and measure predictors of output lengths from prompts.",
    ),
}
"""Where each command is, and the first line of its help, by which the overview needs none of them.

A command's options name what it uses, such as the rankings of the scheduler, and its module
imports that. All together take ten times as long as this table.
"""

styled = partial(
    typer.Typer,
    no_args_is_help=True,
    add_completion=False,  # the whole command line has it
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def command(name: str) -> Any:
    """Return a command, or a group of commands, with its options."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"caesura.runtime.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    from caesura.runtime.cli.errors import VllmCommand

    alone = styled()
    alone.command(name, cls=VllmCommand)(found)
    return typer.main.get_command(alone)


class Commands(TyperGroup):
    """The commands, of which only the called one is imported."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command, and the arguments left."""
        if args[0] in COMMANDS:
            self.commands[args[0]] = command(args[0])
        return super().resolve_command(ctx, args)


app = styled(
    name="caesura",
    cls=Commands,
    add_completion=True,
    help="Run and serve tool-calling models; requests pause inside vLLM while a tool runs.",
)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the versions of Caesura and of vLLM.")
    ] = False,
) -> None:
    """Run and serve tool-calling models; requests pause inside vLLM while a tool runs."""
    if version:
        typer.echo(version_text())
        raise typer.Exit


def _named() -> None:
    """Stand in for a command in the overview."""


for _name, (_, _line) in COMMANDS.items():
    app.command(_name, help=_line)(_named)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="caesura")
    except BrokenPipeError:
        # The reader of the output has exited, so no error can be printed.
        sys.stderr.close()
        raise SystemExit(1) from None
