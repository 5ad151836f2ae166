"""Turns in which each call, or each list of calls, has an opener and an end of its own."""

from collections.abc import Generator, Iterator, Sequence

from caesura.intercept.body import CallBody
from caesura.intercept.events import Event, TextDelta
from caesura.intercept.formats import CallFormat
from caesura.intercept.markers import first_hit, held_back
from caesura.scheduler.vllm.client.parsing.announcing import Announcer
from caesura.scheduler.vllm.client.parsing.calls import UNCLOSED, UNREADABLE, CallEvents
from caesura.scheduler.vllm.client.parsing.reading import CallReader

Steps = Generator[Event, None, bytes]
"""Events, and in the end the bytes that are still to be read."""


class _Region:
    """A call that has been opened."""

    def __init__(self, form: CallFormat, reader: CallReader, opener: bytes) -> None:
        self.opener = opener
        self.body = CallBody(form)
        self.events = CallEvents(form.shape, verbatim=form.body == "json")
        self.announcer = Announcer(form, reader)

    def text(self, size: int | None = None) -> str:
        """The call as it was written, its markers included."""
        return (self.opener + self.body.text[:size]).decode(errors="replace")


class RegionTurn:
    """Reads one turn: text for the reader, and calls between it."""

    def __init__(self, form: CallFormat, reader: CallReader) -> None:
        self._form = form
        self._reader = reader
        self._markers = [text.encode() for text in (*form.opens, *form.section) if text]
        self._window = b""
        self._region: _Region | None = None
        self._space: str | None = None

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Read more of the turn."""
        yield from self._read(text.encode())

    def end(self) -> Iterator[Event]:
        """The turn is over: refuse a call that is still open, and show what was held back."""
        while self._region is not None:
            self._region.body.end()
            rest = yield from self._settle(self._region, closed=False)
            yield from self._read(rest)
        yield from self._show(self._window)
        self._window = b""

    def _read(self, data: bytes) -> Iterator[Event]:
        while data:
            if self._region is None:
                data = yield from self._outside(data)
            else:
                data = yield from self._inside(self._region, data)

    def _outside(self, data: bytes) -> Steps:
        """Show text up to the next opener; return what stands behind it."""
        self._window += data
        hit = first_hit(self._window, self._markers)
        if hit is None:
            ready = len(self._window) - held_back(self._window, self._markers)
            shown, self._window = self._window[:ready], self._window[ready:]
            yield from self._show(shown)
            return b""
        yield from self._show(self._window[: hit.start])
        opener, rest = self._window[hit.start : hit.end], self._window[hit.end :]
        self._window, self._space = b"", ""
        if hit.marker < len(self._form.opens):
            self._region = _Region(self._form, self._reader, opener)
            yield from self._region.events.announce(self._region.announcer.push(opener.decode()))
        return rest

    def _inside(self, region: _Region, data: bytes) -> Steps:
        """Read a call; return what stands behind it once it is closed."""
        rest = region.body.feed(data)
        piece = data if rest is None else data[: len(data) - len(rest)]
        yield from region.events.announce(region.announcer.push(piece.decode(errors="replace")))
        if rest is None:
            return b""
        behind = yield from self._settle(region)
        return behind + rest

    def _settle(self, region: _Region, closed: bool = True) -> Steps:
        """Say what came of a call that has ended; return what turned out not to belong to it.

        A call that is not `closed` may lack the rest of a value, or further values.
        """
        self._region, self._space = None, ""
        text, rest = region.text(), b""
        found = self._reader.read(text) if closed else []
        reason = UNREADABLE if closed else UNCLOSED
        if not found and region.body.doubtful is not None:
            # A marker that seemed to stand in a string was the end of a broken call after all.
            rest = bytes(region.body.text[region.body.doubtful :])
            text = region.text(region.body.doubtful)
            found, reason = self._reader.read(text), UNREADABLE
        if found or region.events.announced:
            yield from region.events.settle(found, text, reason)
        else:
            yield region.events.malformed(text, self._reader.name_in(text), reason)
        return rest

    def _show(self, data: bytes) -> Iterator[Event]:
        """Show text; of spaces behind a call, only those that text follows."""
        text = data.decode()
        if self._space is not None:
            text = self._space + text
            self._space = text if text.isspace() else None if text else ""
            text = "" if self._space is not None else text
        if text:
            yield TextDelta(text)
