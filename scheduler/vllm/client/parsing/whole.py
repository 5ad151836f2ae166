"""Turns that are calls from their first character on, or none at all."""

import re
from collections.abc import Iterator, Sequence

from caesura.intercept.events import Event, TextDelta
from caesura.intercept.formats import CallFormat
from caesura.scheduler.vllm.client.parsing.announcing import Announcer
from caesura.scheduler.vllm.client.parsing.calls import CallEvents, name_in
from caesura.scheduler.vllm.client.parsing.reading import CallReader


class WholeTurn:
    """Reads one turn; what begins as a call and cannot be read as one is prose after all."""

    def __init__(self, form: CallFormat, reader: CallReader) -> None:
        self._form = form
        self._reader = reader
        self._events = CallEvents(form.shape, verbatim=False)
        self._announcer = Announcer(form, reader)
        self._text = ""
        self._prose: bool | None = None

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Read more of the turn."""
        if self._prose is None:
            self._text += text
            head, text = self._text.lstrip(), self._text
            anchored = any(head.startswith(anchor) for anchor in self._form.anchors)
            if not anchored and any(anchor.startswith(head) for anchor in self._form.anchors):
                return
            self._prose = not anchored
            self._text, text = ("", text) if self._prose else ("", head)
        if self._prose:
            yield TextDelta(text)
        else:
            self._text += text
            yield from self._events.announce(self._announcer.push(text))

    def end(self) -> Iterator[Event]:
        """The turn is over: finish its calls, or give it back as text."""
        text, self._text = self._text, ""
        found = self._reader.read(text) if self._prose is False else []
        if found or self._events.announced:
            yield from self._events.settle(found, text)
        elif self._prose is False and re.match(self._form.telling, text):
            yield self._events.malformed(text, name_in(text, self._form.named))
        elif text:
            yield TextDelta(text)
