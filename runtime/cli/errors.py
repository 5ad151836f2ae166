"""What a command does with errors that it knows: a line and an exit code, and no stack trace."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from caesura.runtime.errors import CaesuraError
from caesura.scheduler.calibration import CalibrationError
from caesura.simulator.study.plan import StudyError
from caesura.tools.services import SetupError

errors = Console(stderr=True)


@contextmanager
def mistakes_told() -> Iterator[None]:
    """Tell a known error in a line; raises `typer.Exit` (130 for Ctrl-C, 2 or 1) instead of it."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("interrupted", style="dim")
        raise typer.Exit(130) from None
    except (CaesuraError, SetupError) as error:
        errors.print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
        # As for any option that names something that will not do.
        named = isinstance(error, CalibrationError | StudyError | SetupError)
        raise typer.Exit(2 if named else 1) from None
