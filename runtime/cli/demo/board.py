"""The progress of the demo's requests on the terminal."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from caesura.runtime.cli.show import describe_call, describe_resume, shorten
from caesura.runtime.events import (
    CallFinished,
    ResumeReport,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReturned,
    TurnEnded,
    Usage,
)


@dataclass
class Row:
    """The state of one request."""

    number: int
    question: str
    state: str = "waiting"
    text: str = ""
    calls: list[str] = field(default_factory=list)
    resumes: list[ResumeReport] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    error: str | None = None


class Board:
    """Shows all requests: a live table on a terminal, a line per event elsewhere."""

    def __init__(self, console: Console, questions: Sequence[str]) -> None:
        self.rows = [Row(number, question) for number, question in enumerate(questions, 1)]
        self._console = console
        self._started = time.monotonic()
        self.live = (
            Live(get_renderable=self.progress, console=console, refresh_per_second=12)
            if console.is_terminal
            else None
        )

    def take(self, row: Row, event: RunEvent) -> None:
        """Add an event of one request."""
        match event:
            case TextDelta(text=text):
                row.state, row.text = "decoding", row.text + text
            case CallFinished(name=name, arguments=arguments):
                call = describe_call(name, arguments)
                row.calls.append(call)
                self._line(row, f"[cyan]call[/cyan]   {escape(call)}")
            case ToolReturned(result=result):
                colour = "green" if result.error is None else "yellow"
                shown = escape(shorten(result.content, 80))
                self._line(row, f"[{colour}]result[/{colour}] {shown}")
            case TurnEnded(reason="call"):
                self._resumed(row, event)
                row.state = "paused"
                self._line(row, "pause")
            case TurnEnded():
                self._resumed(row, event)
            case RunEnded(text=text, usage=usage):
                row.state, row.text, row.usage = "done", text, usage
                self._line(row, f"[bold]answer[/bold] {escape(shorten(text, 100))}")
            case _:
                row.state = "decoding"

    def report(self) -> Table:
        """Return the final table."""
        table = Table(title="What each request did", show_lines=False, pad_edge=False)
        table.add_column("#", justify="right")
        table.add_column("question", max_width=32)
        table.add_column("calls", max_width=34)
        for column in ("pause ms", "tokens", "cached at resume"):
            table.add_column(column, justify="right")
        table.add_column("answer", max_width=48)
        for row in self.rows:
            pauses = " ".join(f"{resume.pause_seconds * 1000:.0f}" for resume in row.resumes)
            cached = " ".join(f"{r.cached_tokens}/{r.context_tokens}" for r in row.resumes)
            table.add_row(
                str(row.number),
                escape(row.question),
                escape("\n".join(row.calls)),
                pauses,
                str(row.usage.prompt_tokens + row.usage.completion_tokens),
                cached,
                escape(shorten(row.error or row.text, 120)),
            )
        return table

    def _resumed(self, row: Row, event: TurnEnded) -> None:
        if event.resume is not None:
            row.resumes.append(event.resume)
            self._line(row, f"[dim]resumed: {describe_resume(event)}[/dim]")

    def _line(self, row: Row, markup: str) -> None:
        if self.live is None:
            seconds = time.monotonic() - self._started
            self._console.print(
                f"[dim]{seconds:6.2f} s[/dim] {row.number:2d} {markup}",
                highlight=False,
                soft_wrap=True,
            )

    def progress(self) -> Table:
        """Return the live table, with a line per request."""
        colours = {"paused": "cyan", "done": "green", "failed": "red", "waiting": "dim"}
        table = Table(box=None, pad_edge=False)
        table.add_column("#", justify="right", style="dim")
        for column in ("state", "calls", "text"):
            table.add_column(column, no_wrap=True)
        width = max(20, self._console.width - 45)
        for row in self.rows:
            colour = colours.get(row.state, "white")
            called = escape(shorten(row.calls[-1], 28)) if row.calls else ""
            shown = row.text if row.state == "done" else row.text[-width:]
            table.add_row(
                str(row.number),
                f"[{colour}]{row.state}[/{colour}]",
                called,
                escape(shorten(shown or row.question, width)),
            )
        return table
