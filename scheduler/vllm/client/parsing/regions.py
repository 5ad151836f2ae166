"""Parser for turns in which each call, or each list of calls, has its own opener and end."""

import re
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import Protocol

from caesura.intercept.calls.call_body import CallBody
from caesura.intercept.calls.events import Event, TextDelta
from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.markers import first_hit, held_back, unmarked
from caesura.intercept.calls.mentions import Code
from caesura.scheduler.vllm.client.parsing.calls import (
    UNCLOSED,
    CallEvents,
    Found,
    Piece,
    TurnParser,
    name_in,
)

# What no answer writes to explain a format: a name before a bracket, a tag, a key in quotes.
_ATTEMPT = re.compile(r"\s*(?:[\w.:-]{1,64}[(\[{]|<(?:[fa|\uff5c]|invoke\s)|\[?\s*\{\s*[\"'])")

Steps = Generator[Event, None, bytes]
"""A generator of events that returns the bytes still to be parsed."""


class RegionReader(Protocol):
    """Parses the calls of one region."""

    def push(self, text: str) -> Iterator[Piece]:
        """Parse more of the region, its opener first; yield what is certain of its calls."""

    def found(self, text: str) -> list[Found]:
        """Return the calls of the complete region, whose text is `text`.

        Raises `ValueError`, with one line for the model, without calls or for a malformed one.
        """


class _Region:
    """An open region of calls."""

    def __init__(
        self, form: CallFormat, calls: RegionReader, opener: bytes, space: str | None
    ) -> None:
        self.opener = opener
        self.space = space
        """The spaces between the call before and the opener; None if text follows that call."""
        self.body = CallBody(form)
        self.events = CallEvents(form.shape, verbatim=form.body == "json")
        self.calls = calls

    @property
    def complete(self) -> bool:
        """Whether a call whose opener is optional is complete, so that it needs no closer."""
        form = self.body.form
        if form.certain or form.inner is None:
            return False
        return self.body.text.rstrip().endswith(form.inner[1].encode())

    def text(self, size: int | None = None) -> str:
        """Return the call's text as the model wrote it, including its markers."""
        return _written(self.opener + self.body.text[:size])

    def is_attempt(self, text: str) -> bool:
        """Return whether a text that holds no call was meant as one."""
        inside = text.removeprefix(self.opener.decode())
        return bool(_ATTEMPT.match(inside) or name_in(text, self.body.form.named))


class RegionTurn(TurnParser):
    """Parses one turn into text and calls."""

    def __init__(
        self,
        forms: Sequence[CallFormat],
        new_reader: Callable[[], RegionReader],
        plain: Collection[bytes] = (),
    ) -> None:
        """Create a parser; `forms` are those of one format.

        `new_reader` creates a reader for the calls of one region. `plain` are the markers that do
        not count in code.
        """
        self._plain = plain
        self._code = Code()
        self._openers = [(text.encode(), form) for form in forms for text in form.opens]
        sections = [text.encode() for form in forms for text in form.section if text]
        self._markers = [*(text for text, _ in self._openers), *sections]
        self._new_reader = new_reader
        # The first line has no line break before it, which some openers require.
        lines = any(text.startswith(b"\n") for text in self._markers)
        self._line_start = b"\n" if lines else b""
        self._window = self._unseen = self._line_start
        self._region: _Region | None = None
        self._space: str | None = None
        self._unread = b""

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that further text belongs to it."""
        return self._region is not None

    @property
    def behind_call(self) -> bool:
        """Whether only spaces have followed the last call."""
        return self._region is None and self._space is not None and not self._window.strip()

    def take_unread(self) -> bytes:
        """Return bytes that seemed part of a call but were not, to be parsed again as text."""
        data, self._unread = self._unread, b""
        return data

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""
        yield from self._read(text.encode())

    def end(self) -> Iterator[Event]:
        """Refuse a call that is still open, and yield the text that was held back."""
        if self._region is not None and self._region.body.begun is None:
            yield from self._mention(self._region, self._region.body.head)
        elif self._region is not None:
            self._region.body.end()
            self._unread = yield from self._settle(self._region, closed=self._region.complete)
        yield from self._show(self._window)
        self._window = self._unseen = self._line_start
        self._code = Code()

    def _read(self, data: bytes) -> Iterator[Event]:
        while data:
            if self._region is None:
                data = yield from self._outside(data)
            else:
                data = yield from self._inside(self._region, data)

    def _outside(self, data: bytes) -> Steps:
        """Yield text up to the next opener; return the bytes after it."""
        self._window += data
        hit = first_hit(self._window, self._markers)
        if hit is None:
            ready = len(self._window) - held_back(self._window, self._markers)
            shown, self._window = self._window[:ready], self._window[ready:]
            self._code.passed(shown)
            yield from self._show(shown)
            return b""
        marker = self._markers[hit.marker]
        in_code = self._code.holds_behind(self._window[: hit.start], marker)
        if in_code and marker in self._plain:
            self._code.passed(marker[:1])
            shown, rest = self._window[: hit.start + 1], self._window[hit.start + 1 :]
            self._window = b""
            yield from self._show(shown)
            return rest
        yield from self._show(self._window[: hit.start])
        opener, rest = self._window[hit.start : hit.end], self._window[hit.end :]
        opener, self._unseen = opener.removeprefix(self._unseen), b""
        self._window, space, self._space = b"", self._space, ""
        if hit.marker < len(self._openers):
            form = self._openers[hit.marker][1]
            self._region = region = _Region(form, self._new_reader(), opener, space)
            if region.body.begun:
                yield from region.events.announce(region.calls.push(opener.decode()))
        return rest

    def _mention(self, region: _Region, behind: bytes) -> Iterator[Event]:
        """Yield an opener without a call as text; what is behind it is parsed again."""
        self._region, self._space = None, region.space
        self._unread = behind
        self._code.passed(region.opener)
        yield from self._show(region.opener)

    def _inside(self, region: _Region, data: bytes) -> Steps:
        """Parse a call; return the bytes after it once it is closed."""
        body, undecided = region.body, region.body.begun is None
        rest = body.feed(data)
        if not body.begun:
            if rest is not None:
                yield from self._mention(region, rest)
            return b""
        data = body.head if undecided else data
        piece = data if rest is None else data[: len(data) - len(rest)]
        lead = region.opener if undecided else b""
        yield from region.events.announce(region.calls.push(_written(lead + piece)))
        if rest is None:
            return b""
        behind = yield from self._settle(region)
        if not behind:
            return rest
        self._unread = behind + rest
        return b""

    def _settle(self, region: _Region, closed: bool = True) -> Steps:
        """Yield the outcome of a call that has ended; return bytes that do not belong to it.

        A call that is not `closed` may lack the rest of a value, or further values.
        """
        self._region, self._space = None, ""
        text, rest = region.text(), b""
        found, reason = _calls_of(region, text) if closed else ([], UNCLOSED)
        form, doubtful = region.body.form, region.body.doubtful
        if not found and doubtful is not None and form.body == "json":
            # A marker that seemed part of a string was the end of a malformed call. This does not
            # apply to formats with bare text, where a quoted call must not be run.
            rest, text = bytes(region.body.text[doubtful:]), region.text(doubtful)
            found, reason = _calls_of(region, text)
        if found or region.events.announced:
            yield from region.events.settle(found, text, reason)
        elif form.certain and region.is_attempt(text):
            yield region.events.malformed(text, name_in(text, form.named), reason)
        elif form.certain:
            yield from self._show(text.encode())
        else:
            self._space = None
            yield from self._show(region.opener)
            rest = bytes(region.body.text)
        return rest

    def _show(self, data: bytes) -> Iterator[Event]:
        """Yield text; spaces after a call are yielded only if text follows them."""
        if data:
            data, self._unseen = data.removeprefix(self._unseen), b""
        text = _written(data)
        if self._space is not None:
            text = self._space + text
            self._space = text if text.isspace() else None if text else ""
            text = "" if self._space is not None else text
        if text:
            yield TextDelta(text)


def _written(data: bytes) -> str:
    return unmarked(data).decode(errors="replace")


def _calls_of(region: _Region, text: str) -> tuple[list[Found], str]:
    """Return the calls of a closed region, or an empty list and the reason."""
    try:
        return region.calls.found(text), ""
    except ValueError as error:
        return [], str(error)
