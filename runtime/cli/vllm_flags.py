"""Options of vLLM that were typed before `--`, and the command line with them behind it."""

import shlex
from collections.abc import Collection, Sequence
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from caesura.runtime.cli.errors import errors
from caesura.scheduler.serve_options import REFUSED, field_of

_SWITCHES = ("enable_", "disable_", "enforce_", "trust_", "exclude_", "use_", "no_")
"""How the names of options without a value begin."""


class VllmCommand(TyperCommand):
    """A command; one that takes options of `vllm serve` behind `--` says so of one before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left; see click's `Command.parse_args`."""
        own = {flag for each in self.params for flag in (*each.opts, *each.secondary_opts)}
        told = ""
        if any(each.name == "vllm_args" for each in self.params):
            told = misplaced(args, own | set(ctx.help_option_names), ctx.command_path)
        if told:
            errors.print(f"[red]error:[/red] {escape(told)}", highlight=False, soft_wrap=True)
            raise typer.Exit(2)  # as for other invalid options
        return super().parse_args(ctx, args)


def misplaced(arguments: Sequence[str], own: Collection[str], command: str) -> str:
    """Return what to type instead, where options of vLLM stand before `--`; else an empty text.

    `own` are the flags of the command itself, which is called `command`.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept: list[str] = []
    moved: list[str] = []
    named: list[str] = []
    place = kept
    for argument in arguments[:end]:
        flag = argument.partition("=")[0]
        if argument.startswith("-"):
            field = None if flag in own else field_of(flag)
            place = kept if field is None else moved
            if field is not None:
                named.append(flag)
                if field in REFUSED:
                    return f"{flag} is an option of vLLM that has no effect here: {REFUSED[field]}"
        place.append(argument)
        if place is moved and (not argument.startswith("-") or _is_complete(argument)):
            place = kept
    if not named:
        return ""
    whole = [*command.split(), *kept, "--", *moved, *arguments[end + 1 :]]
    what = (
        "is an option of vLLM, and stands" if len(named) == 1 else "are options of vLLM, and stand"
    )
    return f"{', '.join(named)} {what} behind `--`: {shlex.join(whole)}"


def _is_complete(flag: str) -> bool:
    """Return whether no value follows a flag."""
    return "=" in flag or flag.lstrip("-").replace("-", "_").startswith(_SWITCHES)
