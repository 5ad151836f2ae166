"""Telling calls from text that only mentions them, or that only begins like one.

A model that explains how calls are written shows them in code: spans and fenced blocks, as in
CommonMark. An opener that is plain text is a mention there. One that is a token of its own counts
everywhere, since models do not write such a token to explain it.

In formats whose calls need no opener, a turn begins with a call or with an answer, which may be a
JSON object or a list too. The first keys of an object show which it is, as does the first element
of a list, so that an answer is streamed from there on.
"""

import json
import re
from collections.abc import Iterable

from caesura.intercept.calls.formats import LLAMA3_JSON, PYTHONIC, CallFormat
from caesura.intercept.calls.vocabulary import Vocabulary

MARKS = (b"`", b"~")
"""The characters that delimit code."""

_MARK = re.compile(rb"[`~\n]")
_PIECES = re.compile(rb"`+|~+|\n|[^`~\n]+")
_BACKTICK, _TILDE, _NEWLINE = b"`~\n"


def plain_openers(formats: Iterable[CallFormat], vocabulary: Vocabulary | None) -> frozenset[bytes]:
    """Return the openers and section markers that no token of their own stands for.

    Formats that read a whole turn when it has ended, and those with channels, have none.
    """
    texts = {
        text.encode()
        for form in formats
        if not form.in_code
        for text in (*form.opens, *form.section)
        if text
    }
    return frozenset(
        text for text in texts if vocabulary is None or vocabulary.own_token(text) is None
    )


class Code:
    """Follows text outside calls and knows whether its end stands in code.

    A code span ends with its line, so that a lone backtick hides no further line. A fence that is
    not closed lasts to the end of the turn.
    """

    def __init__(self) -> None:
        self._fence = 0
        """The length of the fence that opened the block; 0 outside."""
        self._fence_mark = 0
        self._info = False
        self._closing = False
        self._span = 0
        """The length of the run of backticks that opened the code span; 0 outside."""
        self._indent = 0
        """The number of spaces that begin the line; -1 behind anything else."""
        self._run = 0
        self._run_mark = 0

    @property
    def undecided(self) -> bool:
        """Return whether any next byte may matter, not only one of `MARKS` or a line break."""
        return self._indent >= 0 or self._run > 0 or self._closing

    def passed(self, text: bytes) -> None:
        """Record text that has been read."""
        if _MARK.search(text) is None:
            if text and self._run:
                self._end_run()
            if self._indent >= 0 or self._closing:
                self._pass_text(text)
            return
        for piece in _PIECES.findall(text):
            mark = piece[0]
            if self._run and mark != self._run_mark:
                self._end_run()
            if mark in (_BACKTICK, _TILDE):
                self._run += len(piece)
                self._run_mark = mark
            elif mark == _NEWLINE:
                self._end_line()
            else:
                self._pass_text(piece)

    def holds_behind(self, text: bytes, opener: bytes) -> bool:
        """Record text, and return whether an opener behind it stands in code."""
        self.passed(text)
        return self.holds(opener)

    def holds(self, opener: bytes) -> bool:
        """Return whether an opener behind the recorded text stands in code."""
        if self._run:
            self._end_run()
        if opener.startswith(b"\n"):
            return self._fence > 0 and not self._closing
        return self._fence > 0 or self._span > 0

    def _end_run(self) -> None:
        size, mark, begins = self._run, self._run_mark, self._indent >= 0
        self._run, self._indent = 0, -1
        if self._info:
            if mark == _BACKTICK == self._fence_mark:
                # Such a line opens no block: its first run opened a code span.
                self._span = 0 if size == self._fence else self._fence
                self._fence, self._info = 0, False
        elif self._fence:
            fits = mark == self._fence_mark and size >= self._fence
            self._closing = begins and fits
        elif self._span:
            self._span = 0 if mark == _BACKTICK and size == self._span else self._span
        elif begins and size >= 3:
            self._fence, self._fence_mark, self._info = size, mark, True
        elif mark == _BACKTICK:
            self._span = size

    def _end_line(self) -> None:
        if self._closing:
            self._fence = 0
        self._info = self._closing = False
        self._span = self._indent = 0

    def _pass_text(self, text: bytes) -> None:
        if self._indent >= 0:
            # Behind text other than spaces, and behind four spaces, no fence begins.
            indent = self._indent + len(text) - len(text.lstrip(b" "))
            self._indent = -1 if text.strip(b" ") or indent > 3 else indent
        if self._closing and text.strip(b" \t\r"):
            self._closing = False


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
