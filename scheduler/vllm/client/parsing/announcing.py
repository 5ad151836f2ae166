"""Calls announced while they are being written: vLLM's streaming parsers, kept to what holds."""

import re
from collections.abc import Iterator
from typing import Any

from caesura.intercept.formats import CallFormat
from caesura.intercept.nesting import JsonText
from caesura.scheduler.vllm.client.parsing.calls import Piece
from caesura.scheduler.vllm.client.parsing.reading import CallReader, clean_name

MOST_CHARACTERS = 2048
"""A call that is longer is announced no further before it ends: with each token the parsers read
all of it again."""


class Announcer:
    """Follows one stretch of text that holds calls."""

    def __init__(self, form: CallFormat, reader: CallReader) -> None:
        self._reader = reader
        self._telling = re.compile(form.telling)
        self._section = form.section[0]
        self._opener = form.opens[0] if form.opens else None
        self._parser: Any = None
        self._request: Any = None
        self._name: str | None = None
        self._text = ""
        self._read = ""
        self._ids: list[int] = []
        self._over = False
        self._arguments: dict[int, JsonText] = {}

    def push(self, text: str) -> Iterator[Piece]:
        """Read more of the text; say what is certain of its calls."""
        self._text += text
        # An opener within a call is part of an argument, or the call is broken: the end tells.
        again = self._opener is not None and self._text.find(self._opener, len(self._opener)) >= 0
        self._over = self._over or again or len(self._text) > MOST_CHARACTERS
        if self._over:
            return
        if self._parser is None:
            if not self._telling.match(self._text):
                return
            self._name = self._reader.name_in(self._text)
            self._parser, self._request = self._reader.new_parser(self._name)
            text = self._section + self._text
        yield from self._feed(text)

    def _feed(self, text: str) -> Iterator[Piece]:
        """Have vLLM's parser read more."""
        before, before_ids = self._read, self._ids
        # Not the ids that were decoded: the text begins and ends in the middle of them.
        ids = self._reader.tokenizer.encode(text, add_special_tokens=False)
        self._read, self._ids = before + text, before_ids + ids
        try:
            delta = self._parser.extract_tool_calls_streaming(
                before, self._read, text, before_ids, self._ids, ids, self._request
            )
        except Exception:
            # They are written for one family's habits, and raise whatever they meet.
            self._over = True
            return
        for call in (delta.tool_calls if delta is not None else None) or ():
            if call.function is None or self._over:
                continue
            name = clean_name(call.function.name or "")
            # A marker that was spelled out, or cut in two, is text to some parsers.
            self._over = bool(name and call.index == 0 and name != self._name)
            arguments = self._new_arguments(call.index, call.function.arguments or "")
            if not self._over and (name or arguments):
                yield Piece(call.index, name, arguments)

    def _new_arguments(self, index: int, arguments: str) -> str:
        """Keep of the arguments what belongs to their object: some parsers go on behind it."""
        value = self._arguments.setdefault(index, JsonText(leading=True))
        if not value.begun:
            arguments = arguments.lstrip(": \t\r\n")
        data = b"" if value.done else arguments.encode()
        end = value.feed(data)
        return data[:end].decode() if value.begun else ""
