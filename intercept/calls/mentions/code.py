"""Code in the text of an answer: code spans and fenced blocks, as in CommonMark.

A model that explains how calls are written shows them in code. An opener that is plain text is a
mention there. One that is a token of its own counts everywhere, since models do not write such a
token to explain it.
"""

import re
from collections.abc import Iterable

from caesura.intercept.calls.formats import CallFormat
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
