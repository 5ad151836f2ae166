"""Parser for formats in which a turn holds either calls from its first character, or no call."""

import json
import re
from collections.abc import Collection, Iterator, Sequence

from caesura.intercept.calls.events import Event, TextDelta
from caesura.intercept.calls.formats import LLAMA3_JSON, CallFormat
from caesura.intercept.calls.mentions import TurnBegin
from caesura.scheduler.vllm.client.parsing.announcing import Announcer
from caesura.scheduler.vllm.client.parsing.calls import CallEvents, name_in
from caesura.scheduler.vllm.client.parsing.reading import CallReader
from caesura.scheduler.vllm.client.parsing.turn import TurnParser

_DECODER = json.JSONDecoder()
_NEXT = re.compile(r"\s*;\s*(?=\{)")


class WholeTurn(TurnParser):
    """Parses one turn; text that begins like a call but cannot be parsed as one is prose."""

    def __init__(self, form: CallFormat, reader: CallReader, tools: Collection[str] = ()) -> None:
        """Create a parser; `tools` are the names on offer, and without any all names count."""
        self._form = form
        self._reader = reader
        self._tools = tools
        self._turn_begin = TurnBegin([form], tools)
        self._begin()

    def _begin(self) -> None:
        """Reset the state to before the first text, which decides between calls and prose."""
        self._events = CallEvents(self._form.shape, verbatim=False)
        self._announcer = Announcer(self._form, self._reader)
        self._text = ""
        self._prose: bool | None = None

    @property
    def in_call(self) -> bool:
        """Whether a call is open, so that further text belongs to it."""
        return self._prose is False

    def push(self, text: str, token_ids: Sequence[int]) -> Iterator[Event]:
        """Parse more of the turn and yield its events."""
        if self._prose is None:
            self._text += text
            begins_call = self._turn_begin.is_call(self._text.encode())
            if begins_call is None:
                return
            text, self._text = self._text, ""
            self._prose = not begins_call
            text = text if self._prose else text.lstrip()
        if self._prose:
            yield TextDelta(text)
        else:
            self._text += text
            yield from self._events.announce(self._announcer.push(text))

    def end(self) -> Iterator[Event]:
        """End the turn: finish its calls, or yield its text."""
        text, self._text = self._text, ""
        found = self._reader.read(text) if self._prose is False else []
        if text.startswith("{") and self._tools:
            # The name of a tool may stand behind its arguments, where nothing was announced.
            found = found if any(call.name in self._tools for call in found) else []
        if found or self._events.announced:
            yield from self._events.settle(found, text)
            if found and self._form is LLAMA3_JSON and (rest := _behind_calls(text)):
                yield TextDelta(rest)
        elif self._prose is False and re.match(self._form.telling, text):
            yield self._events.malformed(text, name_in(text, self._form.named))
        elif text:
            yield TextDelta(text)
        self._begin()


def _behind_calls(text: str) -> str:
    """Return the text behind JSON calls with `;` between them, or nothing if it is blank."""
    at = text.find("{")
    try:
        while True:
            _, end = _DECODER.raw_decode(text, at)
            if (further := _NEXT.match(text, end)) is None:
                break
            at = further.end()
    except (ValueError, RecursionError):
        return ""
    return text[end:] if text[end:].strip() else ""
