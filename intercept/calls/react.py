"""Calls written as lines, as in ReAct (Yao et al. 2023): Action, Action Input, Observation.

The request pauses at the end of the input, and the result follows as the observation.
The user sees thoughts and answers; the model sees all of it.
"""

import ast
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from caesura.intercept.calls.call_body import ReactCall
from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.calls.formats import REACT
from caesura.intercept.calls.inline import inline_arguments, python_expression
from caesura.intercept.calls.markers import first_hit, held_back
from caesura.intercept.calls.mentions import Code

_OBSERVATION = "Observation:"
_NOTHING = ("", "none", "null", "n/a")
_OPENS = [text.encode() for text in REACT.opens]


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

    The text is JSON, a dict in Python's spelling, nothing, or written as in an in-line call.
    `parameters` is the tool's JSON schema, None for an unknown tool. Raises `ValueError` with one
    line for the model.
    """
    raw = raw.strip()
    if raw.startswith("`") and raw.endswith("`") and raw.count("`") == 2:
        raw = raw[1:-1].strip()
    if raw.lower() in _NOTHING:
        return {}
    if raw.startswith("{") or _is_list(raw):
        return _object(raw)
    return {"input": raw} if parameters is None else inline_arguments(raw, parameters)


def _is_list(raw: str) -> bool:
    """Return whether a text is a list; text may begin with a bracket, as `[oak OR elm] AND tree`.

    Text behind the bracket shows that it is none, unless it could be part of JSON.
    """
    return raw.startswith("[") and (raw.endswith("]") or '"' in raw or "]" not in raw)


def _object(raw: str) -> dict[str, Any]:
    """Return the value of a JSON object or a dict in Python's spelling, or raise `ValueError`."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        value = _literal(raw)
        if value is None:
            raise ValueError(f"the Action Input is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"the Action Input must be a JSON object, got {raw[:60]}")
    return value


def _literal(raw: str) -> Any:
    """Return the value of a Python literal, as JSON has it; None for any other text."""
    try:
        value = ast.literal_eval(python_expression(raw.lstrip(" \t")))
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            return None
        return json.loads(json.dumps(value, allow_nan=False))
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None


class ReactParser:
    """Turns streamed text into events; text that may be an action is held back until decided."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        """`tools` maps offered names to their JSON schemas; `new_id` returns call ids."""
        self._tools = tools
        self._new_id = new_id
        # The first line of a turn has no line break before it, but labels begin with one.
        self._window = self._unseen = b"\n"
        self._opener = b""
        self._code = Code()
        self._call: ReactCall | None = None
        self.overshoot = ""
        """The text after the end of the last call, in the same delta."""

    @property
    def in_call(self) -> bool:
        """Return whether a call is open, so that the text that follows belongs to it."""
        return self._call is not None

    def push(self, text: str) -> Iterator[Event]:
        """Read more text of the turn."""
        data: bytes | None = text.encode()
        while data:
            if self._call is None:
                data = yield from self._outside(data)
            else:
                data = yield from self._inside(self._call, data)

    def end(self) -> Iterator[Event]:
        """Close an open call and yield the held-back text.

        The caller calls this when the turn has ended or the model begins to think. An input line
        without a line break still counts, unless it is empty.
        """
        call = self._call
        if call is not None and call.begun:
            call.end()
            yield from self._finish(call)
        elif call is not None:
            self._call = None
            yield from self._show(self._opener[1:] + call.unread)
        yield from self._show(self._window)
        self._window = self._unseen = b"\n"
        self._code = Code()

    def answer(self, content: str) -> str:
        """Return the text that answers the last call."""
        return observation(content, self.overshoot)

    def _outside(self, data: bytes) -> Generator[Event, None, bytes]:
        """Yield text up to the next label; return the bytes after it."""
        self._window += data
        hit = first_hit(self._window, _OPENS)
        if hit is None:
            ready = len(self._window) - held_back(self._window, _OPENS)
            shown, self._window = self._window[:ready], self._window[ready:]
            self._code.passed(shown)
            yield from self._show(shown)
            return b""
        if self._code.holds_behind(self._window[: hit.start], _OPENS[hit.marker]):
            size = hit.start + 1
            self._code.passed(self._window[hit.start : size])
            shown, rest, self._window = self._window[:size], self._window[size:], b""
            yield from self._show(shown)
            return rest
        # The line break before the label belongs to the text.
        yield from self._show(self._window[: hit.start + 1])
        rest, self._window = self._window[hit.end :], b""
        self._opener = _OPENS[hit.marker]
        self._call = ReactCall(self._opener, self._tools)
        return rest

    def _inside(self, call: ReactCall, data: bytes) -> Generator[Event, None, bytes]:
        """Read a call; return the bytes after it if it turns out to be none."""
        rest = call.feed(data)
        if rest is None:
            return b""
        if not call.begun:
            self._call = None
            self._code.passed(self._opener + call.mention)
            yield from self._show(self._opener[1:] + call.mention)
            return rest
        self.overshoot = (call.overshoot + rest).decode(errors="replace").removeprefix("\n")
        yield from self._finish(call)
        return b""

    def _finish(self, call: ReactCall) -> Iterator[Event]:
        """Yield the events of a call; only its overshoot can follow, as the request has paused."""
        self._call = None
        self._window = self._unseen = b"\n"
        self._code = Code()
        name, raw, call_id = call.name.strip(), call.input, self._new_id()
        reason = _refusal(call)
        if not name or not call.written:
            yield CallMalformed(call_id, name or None, raw, reason, inline=True)
            return
        yield CallStarted(call_id, name, inline=True)
        try:
            if reason:
                raise ValueError(reason)
            arguments = action_input(raw, self._tools.get(name))
        except ValueError as error:
            yield CallMalformed(call_id, name, raw, str(error), inline=True)
            return
        text = json.dumps(arguments, ensure_ascii=False)
        yield ArgumentsDelta(call_id, text)
        yield CallFinished(call_id, name, text, inline=True)

    def _show(self, data: bytes) -> Iterator[Event]:
        if data:
            data, self._unseen = data.removeprefix(self._unseen), b""
        if data:
            yield TextDelta(data.decode(errors="replace"))


def _refusal(call: ReactCall) -> str:
    """Return why a call that has ended cannot be run, or nothing."""
    if not call.name.strip():
        return 'write a line "Action: TOOL" above "Action Input:"'
    if not call.written:
        return 'the turn ended before the Action Input; write "Action Input: {}" for none'
    return "" if call.closed else "the turn ended within the block of code of the Action Input"
