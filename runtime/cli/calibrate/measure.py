"""Measuring an engine under a progress bar."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from caesura.runtime.engine import Engine
from caesura.runtime.launch import calibrate
from caesura.scheduler.calibration import Calibration


async def measure(engine: Engine, quick: bool) -> Calibration:
    """Return the engine's calibration, measured under a progress bar.

    Raises `UsageError` and `EngineFailed`.
    """
    with _bar(Console(stderr=True)) as progress:
        return await calibrate(engine, quick, progress)


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[float, str], None]]:
    if not console.is_terminal:
        console.print("measuring the engine ...")
        yield lambda done, what: None
        return
    columns = (
        TextColumn("measuring {task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("steps", total=1.0)
        yield lambda done, what: bar.update(task, completed=done, description=what)
