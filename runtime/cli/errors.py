"""Known errors of commands: one line and an exit code, without a stack trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from caesura.planning.application.application import ApplicationError
from caesura.runtime.errors import CaesuraError
from caesura.runtime.supervision.supervisor import EngineLost
from caesura.scheduler.calibration import CalibrationError
from caesura.simulator.study.plan import StudyError
from caesura.tools.services import SetupError

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
    except (CaesuraError, SetupError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        # 2 is the exit code of invalid options.
        if isinstance(error, EngineLost):
            raise typer.Exit(ENGINE_LOST) from None
        named = isinstance(error, CalibrationError | StudyError | SetupError | ApplicationError)
        raise typer.Exit(2 if named else 1) from None
