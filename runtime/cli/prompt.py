"""Questions and approvals for the user at this terminal."""

import asyncio
import json
import os
import sys
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from caesura.runtime.cli.show import plain
from caesura.tools.people import Pending, People

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
