"""Calls in the middle of a sentence: `12 boxes hold [calculator(12*7) -> 84] 84 eggs.`

The caller pushes decoded text into the parser, which yields events. The user sees the sentence
without the bracket; the model sees all of it. Arguments are written as in a Python call, or as
plain text if the tool takes one text.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from caesura.intercept.calls.events import (
    ArgumentsDelta,
    CallFinished,
    CallMalformed,
    CallStarted,
    Event,
    TextDelta,
)
from caesura.intercept.calls.formats import INLINE_CLOSE
from caesura.intercept.calls.markers import first_hit, held_back
from caesura.intercept.calls.mentions import Code

RESULT_LIMIT = "]"
_PARSE_TRIES = 10
_TEXT = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# A quote begins a text only where a value may begin, unlike the one in `what's`.
_BEGIN = r"(^|[(\[{,=:])\s*"
_QUOTED = re.compile(rf"{_BEGIN}(?:{_TEXT}\s*)+")
_OPEN_QUOTE = re.compile(rf"{_BEGIN}[\"']")


def inline_result(content: str, overshoot: str = "") -> str:
    """Return the text that answers an in-line call: ` 84]`.

    `overshoot` is the text after the arrow in the same token; its space is not written twice.
    A bracket or a line break in the result would end the call early for the model, so both are
    replaced.
    """
    flat = " ".join(content.split()).replace("]", ")").replace("[", "(")
    return f"{'' if overshoot.endswith(' ') else ' '}{flat}{RESULT_LIMIT}"


def inline_arguments(raw: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments from the text between the parentheses of an in-line call.

    `parameters` is the tool's JSON schema. Raises `ValueError` with one line for the model.
    """
    names = list(parameters.get("properties", {}))
    raw = raw.strip()
    if not raw:
        return {}
    call = _as_call(raw)
    text_name = _text_parameter(names, parameters)
    if call is not None and (call[1] or text_name is None):
        positional, keyword = call
        if len(positional) > len(names):
            raise ValueError(f"got {len(positional)} arguments, the tool takes {len(names)}")
        return {**dict(zip(names, positional, strict=False)), **keyword}
    if text_name is None:
        raise ValueError("arguments must be literals, as in tool(3, unit='km')")
    quoted = call[0] if call else []
    whole = quoted[0] if len(quoted) == 1 and isinstance(quoted[0], str) else raw
    return {text_name: whole}


def check_end(raw: str) -> None:
    """Raise `ValueError` if the arrow behind `raw`, a call's arguments, was not the call's own.

    It then stands within a quoted text, or in code long behind a bracket that was no call.
    """
    code = _QUOTED.sub(r"\1", raw)
    if _OPEN_QUOTE.search(code):
        raise ValueError(f"an argument cannot hold `{INLINE_CLOSE}`: {raw[:60]}")
    depth = 0
    for bracket in re.findall(r"[()]", code):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            raise ValueError(
                f"text stands between the arguments and `->`; write a text with brackets in"
                f" quotes: {raw[:60]}"
            )


def _text_parameter(names: list[str], parameters: Mapping[str, Any]) -> str | None:
    """Return the tool's only (or only required) parameter if it is a text: it needs no quotes."""
    required = parameters.get("required", [])
    candidates = names if len(names) == 1 else required
    if len(candidates) != 1:
        return None
    schema = parameters["properties"].get(candidates[0], {})
    return candidates[0] if schema.get("type", "string") == "string" else None


def python_expression(text: str) -> ast.expr:
    """Return the tree of an expression.

    Raises what `ast.parse` raises. CPython before 3.13 counts the depth of all threads' trees in
    one number, and blames a tree for what another thread did meanwhile: that is tried again.
    """
    for _ in range(_PARSE_TRIES - 1):
        with suppress(SystemError):
            return ast.parse(text, mode="eval").body
    return ast.parse(text, mode="eval").body


def _as_call(raw: str) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the literals of a text such as `3, unit='km'`; None for any other text."""
    try:
        tree = python_expression(f"f({raw})")
        if not isinstance(tree, ast.Call) or any(key.arg is None for key in tree.keywords):
            return None
        positional = [ast.literal_eval(node) for node in tree.args]
        keyword = {str(key.arg): ast.literal_eval(key.value) for key in tree.keywords}
        json.dumps([positional, keyword])
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return None
    return positional, keyword


class InlineParser:
    """Turns streamed text into events.

    A call is announced when it is complete and not at its bracket: a bracket that is never closed
    is prose, and the user sees it unchanged.
    """

    def __init__(self, tools: Mapping[str, Mapping[str, Any]], new_id: Callable[[], str]) -> None:
        """`tools` maps offered names to their JSON schemas; `new_id` returns call ids."""
        self._tools = tools
        self._names = list(tools)
        self._opens = [f"[{name}(".encode() for name in tools]
        self._close = [INLINE_CLOSE.encode()]
        self._new_id = new_id
        self._code = Code()
        self._window = b""
        self._inside: str | None = None
        self._space_written = True
        self._after_call = False
        self.overshoot = ""
        """The text after the arrow of the last call, in the same delta."""

    @property
    def in_call(self) -> bool:
        """Return whether a call is open, so that the text that follows belongs to it."""
        return self._inside is not None

    def push(self, text: str) -> Iterator[Event]:
        """Read more text of the turn."""
        self._window += text.encode()
        while True:
            markers = self._opens if self._inside is None else self._close
            hit = first_hit(self._window, markers)
            if hit is None:
                break
            if self._inside is None and self._code.holds_behind(
                self._window[: hit.start], markers[hit.marker]
            ):
                size = hit.start + 1
                self._code.passed(self._window[hit.start : size])
                before, self._window = self._window[:size], self._window[size:]
                yield from self._text(before)
                continue
            before, self._window = self._window[: hit.start], self._window[hit.end :]
            if self._inside is None:
                yield from self._text(before)
                self._inside = self._names[hit.marker]
            else:
                yield from self._finish(before.decode())
                return
        if self._inside is None:
            kept = held_back(self._window, markers)
            ready = self._window[: len(self._window) - kept]
            self._window = self._window[len(ready) :]
            self._code.passed(ready)
            yield from self._text(ready)

    def end(self) -> Iterator[Event]:
        """Yield an open call as text, because the turn has ended or the model begins to think."""
        text, self._window = self._window, b""
        self._code = Code()
        if self._inside is not None:
            text = f"[{self._inside}(".encode() + text
            self._inside = None
        yield from self._text(text)

    def answer(self, content: str) -> str:
        """Return the text that answers the last call."""
        return inline_result(content, self.overshoot)

    def _finish(self, raw: str) -> Iterator[Event]:
        """Yield the events of a call; only its overshoot can follow, as the request has paused."""
        assert self._inside is not None
        name, self._inside = self._inside, None
        self.overshoot, self._window = self._window.decode(), b""
        self._after_call = True
        self._code = Code()
        call_id = self._new_id()
        yield CallStarted(call_id, name, inline=True)
        try:
            check_end(raw)
            arguments = json.dumps(inline_arguments(raw, self._tools[name]), ensure_ascii=False)
        except ValueError as error:
            yield CallMalformed(call_id, name, raw, str(error), inline=True)
            return
        yield ArgumentsDelta(call_id, arguments)
        yield CallFinished(call_id, name, arguments, inline=True)

    def _text(self, data: bytes) -> Iterator[Event]:
        """Yield text for the user; a removed call leaves no double space."""
        text = data.decode()
        if text and self._after_call:
            self._after_call = False
            if self._space_written:
                text = text.removeprefix(" ")
        if text:
            self._space_written = text[-1].isspace()
            yield TextDelta(text)
