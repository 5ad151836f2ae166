"""Find where a JSON value begins and ends in a stream of bytes, however the stream is cut."""

import re

_OUTSIDE = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'["\\]')


class JsonText:
    """Follows the first JSON object or array in a text by its brackets and quotes alone."""

    def __init__(self, leading: bool = False) -> None:
        """`leading`: the value must begin the text; otherwise any later `{` begins it too."""
        self._leading = leading
        self._blank = True
        self._escaped = False
        self._depth = 0
        self.in_string = False
        self.begun = False
        self.done = False

    @property
    def open(self) -> bool:
        """Return whether the value has begun and has not ended."""
        return self.begun and not self.done

    def feed(self, data: bytes) -> int | None:
        """Read more bytes; return the offset in `data` after the value if the value ends there."""
        at = 0 if self.begun else self._begin(data)
        while not self.done and 0 <= at < len(data):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_STRING if self.in_string else _OUTSIDE).search(data, at)
            if found is None:
                return None
            at = found.end()
            self._step(found[0])
            if self.done:
                return at
        return None

    def _begin(self, data: bytes) -> int:
        """Return the offset in `data` where the value begins, or -1."""
        lead = data.lstrip()
        if self._blank and lead:
            self._blank = False
            if lead[0] in b"{[":
                self.begun = True
                return len(data) - len(lead)
        if self._leading or self._blank:
            return -1
        at = data.find(b"{")
        self.begun = at >= 0
        return at

    def _step(self, mark: bytes) -> None:
        if mark == b"\\":
            self._escaped = True
        elif mark == b'"':
            self.in_string = not self.in_string
        else:
            self._depth += 1 if mark in b"{[" else -1
            self.done = self._depth <= 0
