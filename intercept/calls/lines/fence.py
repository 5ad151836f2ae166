"""The input of a call in a fenced block of code."""

import re

_FENCE_OPENS = re.compile(rb"(`{3,})(.*)", re.DOTALL)
_FENCE_INFO = re.compile(rb"[\w+-]*[ \t\r]*")
_FENCE_CLOSES = re.compile(rb" {0,3}(`{3,})[ \t\r]*")
_FENCE_BREAK = b"Observation:"


class Fence:
    """Finds the end of a fenced block that begins with the first byte."""

    def __init__(self) -> None:
        self.closed = False
        """Whether the fence was closed, and did not end with the turn."""
        self._line = b""
        self._run = 0
        self._lines: list[bytes] = []

    @property
    def inside(self) -> bytes:
        """Return the text within the fence."""
        return b"\n".join(self._lines)

    def feed(self, data: bytes) -> bytes | None:
        """Read more bytes; return those after the line that closes the fence, else None."""
        while data:
            piece, found, data = data.partition(b"\n")
            self._line += piece
            if not found:
                return None
            line, self._line = self._line, b""
            if self._ends(line):
                return data
        return None

    def end(self) -> None:
        """Read the last line, because the turn has ended."""
        line, self._line = self._line, b""
        if line:
            self._ends(line)

    def _ends(self, line: bytes) -> bool:
        """Read one line; return whether it ends the block."""
        opens = _FENCE_OPENS.match(line) if not self._run else None
        if opens is not None:
            return self._open(len(opens[1]), opens[2])
        closes = _FENCE_CLOSES.fullmatch(line)
        self.closed = closes is not None and len(closes[1]) >= self._run
        if not self.closed and not line.startswith(_FENCE_BREAK):
            self._lines.append(line)
            return False
        return True

    def _open(self, run: int, behind: bytes) -> bool:
        """Read the line of the opening fence; return whether it also closes the block."""
        self._run = run
        if behind.rstrip().endswith(b"`" * run):
            self._lines.append(behind.rstrip()[:-run])
            self.closed = True
        elif not _FENCE_INFO.fullmatch(behind):
            self._lines.append(behind)
        return self.closed
