"""A run in a terminal: its events are printed, and its questions and approvals are asked."""

import asyncio
import json
import os
import sys
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from caesura.runtime.events import (
    CallFinished,
    CallMalformed,
    ReasoningDelta,
    RunEnded,
    RunEvent,
    TextDelta,
    ToolReported,
    ToolReturned,
    TurnEnded,
)
from caesura.tools.people import Pending, People


def plain(text: str) -> str:
    """Return a model's or a tool's text without control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def shorten(text: str, width: int) -> str:
    """Return a text as one line of at most `width` characters, without control characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def describe_call(name: str, arguments: str) -> str:
    """Return a call such as `price(lamp)`; `arguments` is the JSON text of an object."""
    values = [
        value if isinstance(value, str) else json.dumps(value)
        for value in json.loads(arguments).values()
    ]
    return f"{name}({', '.join(values)})"


def describe_resume(event: TurnEnded) -> str:
    """Return a short description of a turn's resume, or an empty text if it had no pause."""
    resume = event.resume
    if resume is None:
        return ""
    kept = f"{resume.cached_tokens} of {resume.context_tokens} tokens kept"
    return f"{resume.handling}d, {kept}, paused {resume.pause_seconds * 1000:.0f} ms"


class Printer:
    """Prints text as it comes, and a line for each call, result and resume."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False
        self._in_reasoning = False

    def show(self, event: RunEvent) -> None:
        """Print one event."""
        match event:
            case TextDelta(text=text):
                self._break(of_reasoning=False)
                self._write(text)
            case ReasoningDelta(text=text):
                self._break(of_reasoning=True)
                self._write(text, "dim")
            case CallFinished(name=name, arguments=arguments):
                self._line(f"[cyan]⏸ {escape(shorten(describe_call(name, arguments), 100))}[/cyan]")
            case CallMalformed(reason=reason):
                self._line(f"[yellow]⏸ malformed call:[/yellow] {escape(plain(reason))}")
            case ToolReported(call=call, text=text):
                self._line(f"[dim]  {escape(f'{call.name}: {shorten(text, 100)}')}[/dim]")
            case ToolReturned(result=result):
                colour = "green" if result.error is None else "yellow"
                seconds = f"[dim]{result.seconds * 1000:.0f} ms[/dim]"
                self._line(
                    f"[{colour}]▶ {escape(shorten(result.content, 100))}[/{colour}] {seconds}"
                )
            case TurnEnded():
                if event.resume is not None:
                    self._line(f"[dim]  {describe_resume(event)}[/dim]")
            case RunEnded(usage=usage):
                self._line(
                    f"[dim]{usage.turns} turns, {usage.calls} calls, {usage.prompt_tokens} tokens "
                    f"in, {usage.completion_tokens} out, {usage.cached_tokens} cached[/dim]"
                )
            case _:
                pass

    def _write(self, text: str, style: str | None = None) -> None:
        shown = escape(plain(text))
        self._console.print(shown, end="", highlight=False, soft_wrap=True, style=style)
        self._in_text = not text.endswith("\n")

    def _break(self, *, of_reasoning: bool) -> None:
        """End the line between reasoning and answer."""
        if self._in_text and self._in_reasoning != of_reasoning:
            self._console.print()
            self._in_text = False
        self._in_reasoning = of_reasoning

    def _line(self, markup: str) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
        self._console.print(markup, highlight=False)


YES, NO = ("y", "yes"), ("n", "no")


class Terminal:
    """Shows the items that wait for a person, and reads the answers one at a time."""

    def __init__(self, console: Console, stdin: TextIO | None = None) -> None:
        self._console = console
        self._stdin = stdin or sys.stdin
        self._busy = asyncio.Lock()

    def answers_for(self, people: People) -> None:
        """Show every question and every call to approve of `people` here."""
        people.on_question, people.on_approval = self.question, self.approval

    async def question(self, item: Pending) -> str:
        """Return the answer to a question: a text, or the option whose number was typed.

        Raises RuntimeError if the input is not a terminal.
        """
        async with self._busy:
            self._open(f"[bold]{_shown(item.question)}[/bold]")
            for number, option in enumerate(item.options, 1):
                self._line(f"  {number}  {_shown(option)}")
            said = await self._read("answer: ")
        number = int(said) if said.isascii() and said.isdecimal() else 0
        return item.options[number - 1] if 1 <= number <= len(item.options) else said

    async def approval(self, item: Pending) -> bool | str:
        """Return True to allow the call, or False or a text with the reason to deny it.

        Raises RuntimeError if the input is not a terminal.
        """
        async with self._busy:
            arguments = json.dumps(json.loads(item.arguments), ensure_ascii=False, indent=2)
            self._open(f"[bold]May {_shown(item.tool)} be called?[/bold]")
            self._line(_shown(arguments))
            said = await self._read("y, n, or the reason why not: ")
        if said.lower() in YES:
            return True
        return False if said.lower() in NO else said

    def _open(self, markup: str) -> None:
        self._console.print()
        self._line(markup)

    def _line(self, markup: str) -> None:
        self._console.print(markup, highlight=False, soft_wrap=True)

    async def _read(self, prompt: str) -> str:
        """Return the next line that is not empty."""
        if not self._stdin.isatty():
            raise RuntimeError("stdin is not a terminal; cannot ask")
        said = ""
        while not said:
            self._console.print(prompt, end="", highlight=False)
            said = (await _line_of(self._stdin.fileno())).strip()
        return said


async def _line_of(descriptor: int) -> str:
    """Return a line from a terminal. A cancelled read leaves no thread that takes the next line."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not future.done():
            future.set_result(os.read(descriptor, 65536))

    loop.add_reader(descriptor, read)
    try:
        data = await future
    finally:
        loop.remove_reader(descriptor)
    if not data:
        raise RuntimeError("the input has ended")
    return data.decode(errors="replace")


def _shown(text: str) -> str:
    """Return a model's text as markup without control characters."""
    return escape(plain(text))
