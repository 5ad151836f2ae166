"""Announcement of calls while the model writes them, limited to what is certain."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from caesura.intercept.calls.call_body import JsonText
from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.markers import first_hit, held_back
from caesura.scheduler.vllm.client.parsing.calls import UNREADABLE, Found, Piece, name_in
from caesura.scheduler.vllm.client.parsing.reading import CallReader, clean_name

MAX_CHARACTERS = 2048
"""A call whose head is longer is not announced. The announcement of a call by vLLM's parsers ends
at this length, since they parse the whole text again at each token."""


class Announcer:
    """Announces the calls of one region of text."""

    def __init__(self, form: CallFormat, reader: CallReader) -> None:
        self._form = form
        self._reader = reader
        self._telling = re.compile(form.telling)
        self._head = ""
        self._follow: Callable[[str], Iterator[Piece]] | None = None
        self._over = False

    def push(self, text: str) -> Iterator[Piece]:
        """Parse more text; yield what is certain of its calls."""
        if self._follow is not None:
            yield from self._follow(text)
        elif not self._over:
            self._head += text
            self._over = len(self._head) > MAX_CHARACTERS
            told = self._telling.match(self._head)
            if told is not None and not self._over:
                yield from self._begin(told)

    def found(self, text: str) -> list[Found]:
        """Return the calls in the complete text; raise `ValueError` if there is none."""
        found = self._reader.read(text)
        if not found:
            raise ValueError(UNREADABLE)
        return found

    def _begin(self, told: re.Match[str]) -> Iterator[Piece]:
        """Announce the call, and choose how to follow its arguments."""
        # The search ends before the arguments, which may hold text that looks like a name.
        name = name_in(told[0], self._form.named)
        start = told.end() - 1
        if name is not None and self._form.body == "json" and self._head[start] == "{":
            yield Piece(0, clean_name(name), "")
            self._follow = _Object(self._form).push
            yield from self._follow(self._head[start:])
        else:
            self._follow = _Streamed(self._form, self._reader, name).push
            yield from self._follow(self._head)


class _Object:
    """Follows the JSON arguments of a text's only call, which end with their object."""

    def __init__(self, form: CallFormat) -> None:
        self._value = JsonText(leading=True)
        # A marker within a call is part of an argument, or the call is malformed. Only the end of
        # the call shows which.
        self._markers = [text.encode() for text in (*form.opens, form.closes) if text]
        self._window = b""
        self._over = False

    def push(self, text: str) -> Iterator[Piece]:
        if self._over:
            return
        self._window += text.encode()
        hit = first_hit(self._window, self._markers)
        ready = len(self._window) - held_back(self._window, self._markers)
        data = self._window[: ready if hit is None else hit.start]
        self._window = self._window[len(data) :]
        end = self._value.feed(data)
        self._over = hit is not None or end is not None
        if data[:end]:
            yield Piece(0, "", data[:end].decode())


class _Streamed:
    """Follows calls with vLLM's streaming parser for the format."""

    def __init__(self, form: CallFormat, reader: CallReader, name: str | None) -> None:
        self._reader = reader
        self._name = name
        self._parser, self._request = reader.new_parser()
        self._opener = form.opens[0] if form.opens else None
        self._begins = form.section[0]
        self._read = ""
        self._ids: list[int] = []
        self._over = False
        self._arguments: dict[int, JsonText] = {}

    def push(self, text: str) -> Iterator[Piece]:
        if self._over:
            return
        before, before_ids = self._read, self._ids
        text, self._begins = self._begins + text, ""
        self._read += text
        opener = self._opener
        again = opener is not None and self._read.count(opener) > 1
        self._over = again or len(self._read) > MAX_CHARACTERS
        if self._over:
            return
        # The decoded ids do not fit, since the text may begin and end within a token.
        ids = self._reader.tokenizer.encode(text, add_special_tokens=False)
        self._ids = before_ids + ids
        try:
            delta = self._parser.extract_tool_calls_streaming(
                before, self._read, text, before_ids, self._ids, ids, self._request
            )
        except Exception:
            # vLLM's parsers raise many classes of errors for text that they do not expect.
            self._over = True
            return
        yield from self._pieces(delta)

    def _pieces(self, delta: Any) -> Iterator[Piece]:
        for call in (delta.tool_calls if delta is not None else None) or ():
            if call.function is None or self._over:
                continue
            name = clean_name(call.function.name or "")
            # Some parsers take a marker for text if the model wrote it with other tokens.
            self._over = bool(name and call.index == 0 and name != self._name)
            arguments = self._new_arguments(call.index, call.function.arguments or "")
            if not self._over and (name or arguments):
                yield Piece(call.index, name, arguments)

    def _new_arguments(self, index: int, arguments: str) -> str:
        """Return the part of the arguments within their object; some parsers add text after it."""
        value = self._arguments.setdefault(index, JsonText(leading=True))
        if not value.begun:
            arguments = arguments.lstrip(": \t\r\n")
        data = b"" if value.done else arguments.encode()
        end = value.feed(data)
        return data[:end].decode() if value.begun else ""
