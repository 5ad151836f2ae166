"""How a turn begins in formats whose calls need no opener: with a call, or with an answer.

A JSON object may be an answer, and so may a list. The first keys of an object show which it is, as
does the first element of a list, so that an answer is streamed from there on.
"""

import json
import re
from collections.abc import Iterable

from caesura.intercept.calls.formats import LLAMA3_JSON, PYTHONIC, CallFormat

MAX_HEAD_BYTES = 1024
"""Length of the text that decides; what is undecided by then is an answer."""

_STRING = re.compile(rb'\s*"((?:[^"\\]|\\.)*)"')
_OPEN_STRING = re.compile(rb'\s*(?:"((?:[^"\\]|\\.)*)\\?)?\Z')
_COLON = re.compile(rb"\s*:")
_COMMA = re.compile(rb"\s*,")
_BLANK = re.compile(rb"\s*\Z")
_OBJECT = re.compile(rb"\s*\{")

_VALUES = ("parameters", "arguments")
_KEYS = (*_VALUES, "name", "type", "function")

_WORD = rb"[^\s=()\[\]{}\"',:]"
_CALLED = re.compile(rb"\[\s*(" + _WORD + rb"+)\s*(?=\()")
_OPEN_CALLED = re.compile(rb"\[\s*(" + _WORD + rb"*)(\s*)\Z")
_BY_NAME = re.compile(rb"\(\s*(?:\)|" + _WORD + rb"+\s*=)")
_OPEN_BY_NAME = re.compile(rb"\(\s*(?:" + _WORD + rb"+\s*)?\Z")


class TurnBegin:
    """Decides whether a turn begins with a call of one of several formats."""

    def __init__(self, formats: Iterable[CallFormat], tools: Iterable[str]) -> None:
        """`tools` are the names on offer; without any, every name is taken for a tool's."""
        self._anchors = [(text.encode(), form) for form in formats for text in form.anchors]
        self._tools = tuple(tools)

    @property
    def matters(self) -> bool:
        """Return whether any of the formats has calls that begin a turn."""
        return bool(self._anchors)

    def is_call(self, text: bytes) -> bool | None:
        """Return whether the first text of a turn begins a call; None if that is not known yet.

        The result for a text holds for all its continuations, unless it is None.
        """
        head = text.lstrip()
        decided: list[bool | None] = [self._opens(head, *anchor) for anchor in self._anchors]
        if True in decided:
            return True
        return None if None in decided and len(head) < MAX_HEAD_BYTES else False

    def _opens(self, head: bytes, anchor: bytes, form: CallFormat) -> bool | None:
        if not head.startswith(anchor):
            return None if anchor.startswith(head) else False
        if form is LLAMA3_JSON and anchor == b"{":
            return self._is_object(head)
        if form is PYTHONIC and anchor == b"[":
            return self._is_list(head)
        return True

    def _is_object(self, head: bytes) -> bool | None:
        """Return whether a JSON object is a call: its keys are those of one, its name is a tool's.

        A tool's name must be followed by its arguments.
        """
        at = 1
        while True:
            key = _STRING.match(head, at)
            if key is None:
                return _may_become(_OPEN_STRING.match(head, at), _KEYS)
            name = _text(key[1])
            if name not in _KEYS:
                return False
            colon = _COLON.match(head, key.end())
            if colon is None:
                return _unless_blank(head, key.end())
            if name in _VALUES:
                return bool(_OBJECT.match(head, colon.end())) or _unless_blank(head, colon.end())
            value = _STRING.match(head, colon.end())
            allowed = {"name": self._tools, "type": ("function",)}.get(name, ())
            if value is None:
                return _may_become(_OPEN_STRING.match(head, colon.end()), allowed)
            if allowed and _text(value[1]) not in allowed:
                return False
            comma = _COMMA.match(head, value.end())
            if comma is None:
                return _unless_blank(head, value.end())
            at = comma.end()

    def _is_list(self, head: bytes) -> bool | None:
        """Return whether a list is calls: a tool's name, a bracket, and arguments by name."""
        called = _CALLED.match(head)
        if called is None:
            begun = _OPEN_CALLED.match(head)
            if begun is not None and begun[2]:
                return None if self._tools == () or _text(begun[1]) in self._tools else False
            return _may_become(begun, self._tools)
        if self._tools and _text(called[1]) not in self._tools:
            return False
        if _BY_NAME.match(head, called.end()):
            return True
        return None if _OPEN_BY_NAME.match(head, called.end()) else False


def _unless_blank(head: bytes, at: int) -> bool | None:
    """Return None if only spaces follow, so that the next character decides, else False."""
    return None if _BLANK.match(head, at) else False


def _may_become(begun: re.Match[bytes] | None, allowed: Iterable[str]) -> bool | None:
    """Return None if a text that has begun may become one of those allowed, else False."""
    if begun is None:
        return False
    text, allowed = begun[1] or b"", tuple(allowed)
    if not allowed or b"\\" in text:
        return None
    return None if any(each.encode().startswith(text) for each in allowed) else False


def _text(written: bytes) -> str | None:
    """Return the text that a JSON string without its quotes stands for, or None."""
    try:
        text: str = json.loads(b'"' + written + b'"')
    except ValueError:
        return None
    return text
