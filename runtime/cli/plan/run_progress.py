"""The progress of a run: a bar in a terminal, a line for each stage and load elsewhere."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from caesura.planning.run.journal import Result

TOLD = ("stage", "loaded", "not loaded", "lost", "devices", "replanned")
"""The events that get a line."""


class Shown(Protocol):
    """What a run is shown to."""

    def event(self, row: Mapping[str, Any]) -> None:
        """Show an event of the run."""
        ...

    def result(self, result: Result) -> None:
        """Show a result."""
        ...


@contextmanager
def watching(requests: int, done: int, console: Console, quiet: bool) -> Iterator[Shown]:
    """Yield what shows a run of `requests`, of which `done` are done; remove the bar at the end."""
    if quiet or not console.is_terminal:
        yield Lines(None if quiet else console)
        return
    columns = (
        TextColumn("running"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bar(progress, requests, done)


class Lines:
    """Prints a line for each event; nothing without a console."""

    def __init__(self, console: Console | None) -> None:
        self._console = console

    def event(self, row: Mapping[str, Any]) -> None:
        """Print the event."""
        if self._console is not None and row["event"] in TOLD:
            line = f"{row['at']:8.1f} s  {line_of(row)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def result(self, result: Result) -> None:
        """Print nothing."""


class Bar:
    """A bar of the requests, with the engines that serve or load."""

    def __init__(self, progress: Progress, requests: int, done: int) -> None:
        self._progress = progress
        self._engines: dict[str, str] = {}
        self._task = progress.add_task("", total=requests, completed=done)

    def event(self, row: Mapping[str, Any]) -> None:
        """Update the engines, and print what is unusual above the bar."""
        name, replica = row["event"], row.get("replica", "")
        if name == "loading":
            self._engines[replica] = f"{replica} (loading)"
        elif name == "loaded":
            self._engines[replica] = replica
        elif name in ("evicted", "lost"):
            self._engines.pop(replica, None)
        if name in ("not loaded", "lost", "devices", "replanned"):
            self._progress.console.print(line_of(row), markup=False, highlight=False)
        self._progress.update(self._task, description=", ".join(self._engines.values()))

    def result(self, result: Result) -> None:
        """Count the result."""
        self._progress.advance(self._task)


def line_of(row: Mapping[str, Any]) -> str:
    """Return a line that says an event."""
    match row["event"]:
        case "stage":
            named = (f"{one['model']} x{one['replicas']}" for one in row["placements"])
            return f"stage {row['stage'] + 1}: {', '.join(named)}"
        case "loaded":
            devices = ", ".join(map(str, row["devices"]))
            return f"{row['replica']} is loaded on device {devices} after {row['seconds']:.1f} s"
        case "not loaded":
            return f"{row['replica']} could not be loaded: {row['reason']}"
        case "lost":
            return f"{row['replica']} was lost: {row['reason']}"
        case "devices":
            return f"devices that are left: {', '.join(map(str, row['usable']))}"
        case "replanned":
            return f"another plan for what is left, by {row['strategy']}: {row['reason']}"
        case name:
            return str(name)
