"""Known errors of commands: one line and an exit code, without a stack trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

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
    from caesura.runtime.supervision.supervisor import EngineLost
    from caesura.scheduler.calibration import CalibrationError
    from caesura.simulator.study.plan import StudyError
    from caesura.tools.services import SetupError

    if isinstance(error, EngineLost):
        return ENGINE_LOST
    if isinstance(error, CalibrationError | StudyError | SetupError | ApplicationError):
        return 2
    return 1 if isinstance(error, CaesuraError) else None
