"""Mistakes of users, each told in a line: known errors, and options of vLLM at the wrong place."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from caesura.scheduler.serve_options import REFUSED, field_of

errors = Console(stderr=True)
ENGINE_LOST = 3
"""The exit code of a server whose engine has died and is not started again."""


class Complaint(Exception):
    """A failed check of `caesura doctor`: the message is the finding; `fix` says how to fix it."""

    def __init__(self, finding: str, fix: str) -> None:
        super().__init__(finding)
        self.fix = fix


@contextmanager
def mistakes_told() -> Iterator[None]:
    """Print a known error as one line, and raise `typer.Exit`: 130 for Ctrl-C, else 3, 2 or 1."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("interrupted", style="dim")
        raise typer.Exit(130) from None
    except typer.Exit:
        raise
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        errors.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(code) from None


def _exit_code(error: Exception) -> int | None:
    """Return the exit code of a known error, or None. 2 is the code of invalid options."""
    # Imported only now, since most commands need neither planning, the simulator nor the server.
    from caesura.planning.application.application import ApplicationError
    from caesura.runtime.errors import CaesuraError
    from caesura.runtime.supervision import EngineLost
    from caesura.scheduler.calibration import CalibrationError
    from caesura.simulator.study.plan import StudyError
    from caesura.tools.services import SetupError

    if isinstance(error, EngineLost):
        return ENGINE_LOST
    if isinstance(error, CalibrationError | StudyError | SetupError | ApplicationError):
        return 2
    return 1 if isinstance(error, CaesuraError) else None


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
