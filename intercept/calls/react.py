"""Calls written as lines, as in ReAct (Yao et al. 2023): Action, Action Input, Observation.

The request pauses at the end of the input line, and the result follows as the observation.
The user sees thoughts and answers; the model sees all of it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from caesura.intercept.calls.call_body import CallBody
from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.calls.formats import REACT
from caesura.intercept.calls.inline import inline_arguments

_ACTION = "Action:"
_INPUT = REACT.opens[0]
_OBSERVATION = "Observation:"
_NOTHING = ("", "none", "null")


def _beginnings(text: str) -> str:
    """Return a pattern for all beginnings of a text, the empty one included."""
    pattern = ""
    for character in reversed(text):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return pattern


# At the end of a text: an action line with a possible beginning of its input line, or a possible
# beginning of either line.
_MAYBE = re.compile(
    rf"\n(?:{_ACTION}[^\n]*(?:\n{_beginnings(_INPUT[1:])})?|{_beginnings(_INPUT[1:])})\Z"
)


def observation(content: str, overshoot: str = "") -> str:
    """Return the text that answers a call: `Observation: 84` and a line break.

    `overshoot` is the text after the end of the input line in the same token. Its part of the
    answer is not written twice.
    """
    text = f"{_OBSERVATION} {content.strip()}\n"
    written = overshoot.lstrip("\n")
    if text.startswith(written):
        return text.removeprefix(written)
    return f"\n{text}"


def action_input(raw: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments from the text after `Action Input:`.

    The text is JSON, nothing, or written as in an in-line call. `parameters` is the tool's JSON
    schema, None for an unknown tool. Raises `ValueError` with one line for the model.
    """
    raw = raw.strip()
    if raw.lower() in _NOTHING:
        return {}
    if raw.startswith(("{", "[")):
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise ValueError(f"the Action Input is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise ValueError(f"the Action Input must be a JSON object, got {raw[:60]}")
        return value
    return {"input": raw} if parameters is None else inline_arguments(raw, parameters)


class ReactParser:
    """Turns streamed text into events; text that may be an action is held back until decided."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        """`tools` maps offered names to their JSON schemas; `new_id` returns call ids."""
        self._tools = tools
        self._new_id = new_id
        self._window = ""
        self._fresh = True
        self._name = ""
        self._body: CallBody | None = None
        self.overshoot = ""
        """The text after the end of the last call, in the same delta."""

    @property
    def in_call(self) -> bool:
        """Return whether a call is open, so that the text that follows belongs to it."""
        return self._body is not None

    def push(self, text: str) -> Iterator[Event]:
        """Read more text of the turn."""
        if self._body is None:
            self._window += text
            found = self._window.find(_INPUT)
            if found < 0:
                # The first line of a turn has no line break before it.
                lead = "\n" if self._fresh else ""
                maybe = _MAYBE.search(lead + self._window)
                ready = maybe.start() - len(lead) if maybe else len(self._window)
                yield from self._show(max(0, ready))
                return
            text = self._window[found + len(_INPUT) :]
            yield from self._open(found)
            self._body = CallBody(REACT)
        rest = self._body.feed(text.encode())
        if rest is not None:
            body = self._body
            self.overshoot = (body.text[body.held :] + rest).decode().removeprefix("\n")
            yield from self._finish(body)

    def end(self) -> Iterator[Event]:
        """Close an open call and yield the held-back text.

        The caller calls this when the turn has ended or the model begins to think. An input line
        without a line break still counts, unless it is empty.
        """
        if self._body is not None:
            self._body.end()
            yield from self._finish(self._body, self._body.text.strip() != b"")
        yield from self._show(len(self._window))
        self._fresh = True

    def answer(self, content: str) -> str:
        """Return the text that answers the last call."""
        return observation(content, self.overshoot)

    def _open(self, found: int) -> Iterator[Event]:
        """Yield the text before the call, and read the tool's name from the line above."""
        above = self._window[:found]
        line = above.rpartition("\n")[2]
        named = line.startswith(_ACTION) and (self._fresh or "\n" in above)
        self._name = line.removeprefix(_ACTION).strip() if named else ""
        yield from self._show(found - len(line) if named else found)
        self._window = ""

    def _finish(self, body: CallBody, written: bool = True) -> Iterator[Event]:
        """Yield the events of a call; only its overshoot can follow, as the request has paused.

        `written`: the line was closed, or the turn ended after an input.
        """
        name, raw = self._name, bytes(body.text[: body.held]).decode()
        self._body, self._fresh = None, True
        call_id = self._new_id()
        if not name:
            reason = 'write a line "Action: TOOL" above "Action Input:"'
            yield CallMalformed(call_id, None, raw, reason, inline=True)
            return
        if not written:
            reason = 'the turn ended before the Action Input; write "Action Input: {}" for none'
            yield CallMalformed(call_id, name, raw, reason, inline=True)
            return
        yield CallStarted(call_id, name, inline=True)
        try:
            arguments = action_input(raw, self._tools.get(name))
        except ValueError as error:
            yield CallMalformed(call_id, name, raw, str(error), inline=True)
            return
        text = json.dumps(arguments, ensure_ascii=False)
        yield ArgumentsDelta(call_id, text)
        yield CallFinished(call_id, name, text, inline=True)

    def _show(self, size: int) -> Iterator[Event]:
        text, self._window = self._window[:size], self._window[size:]
        if text:
            self._fresh = False
            yield TextDelta(text)
