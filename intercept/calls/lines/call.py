"""One call written as lines: its tool, and where its input ends.

Models vary the form: labels in bold or in lower case, a blank line between the labels, JSON on the
line behind the label or in a fenced block. The engine and the API process follow calls with the
same code, so that they agree where a call ends.
"""

import re
from collections.abc import Iterable

from caesura.intercept.calls.call_body import CallBody
from caesura.intercept.calls.formats import REACT
from caesura.intercept.calls.lines.fence import Fence

MAX_ACTION_BYTES = 512
"""Length of the text between the label of the action and that of its input."""

NO_TOOL = frozenset({"none", "n/a", "finish"})
"""Names by which a model says that it calls no tool, in lower case."""

_INPUT = (b"Action Input:", b"Action input:", b"action input:")
_INPUTS = [
    label for text in _INPUT for label in (text, b"**" + text + b"**", b"**" + text[:-1] + b"**:")
]
_OPENS_INPUT = frozenset(b"\n" + label for label in _INPUTS)


def _beginnings(text: bytes) -> bytes:
    """Return a pattern for all beginnings of a text, the empty one included."""
    pattern = b""
    for byte in reversed(text):
        pattern = b"(?:" + re.escape(bytes([byte])) + pattern + b")?"
    return pattern


_ACTION = rb"([^\n]*)"
_HEAD = re.compile(_ACTION + rb"\n\s*(?:" + b"|".join(map(re.escape, _INPUTS)) + rb")")
# All beginnings of such texts.
_MAYBE_ACTION = re.compile(_ACTION + rb"(?:\n\s*(?:" + b"|".join(map(_beginnings, _INPUTS)) + rb"))?\Z")
_QUOTES = "`*\"' \t\r"

# What begins the next line of a model that gives no input.
_NEXT = (b"Observation:", b"Thought:", b"Action:", b"Final Answer:")


class ReactCall:
    """Follows one call from its label to the end of its input; the interface is `CallBody`'s."""

    def __init__(self, opener: bytes, tools: Iterable[str]) -> None:
        """`opener` is the label with the line break before it; `tools` are the names on offer."""
        self.form = REACT
        self.name = ""
        """The name of the tool; empty if the input has no action above it."""
        self.begun: bool | None = True if opener in _OPENS_INPUT else None
        """Whether this is a call; None if that is not known yet."""
        self.mention = b""
        """The text behind the opener that turned out to be no call, and is not read again."""
        self.overshoot = b""
        """The label of the next line, if it ended the call."""
        self._no_tool = NO_TOOL - {name.lower() for name in tools}
        self._taken = b""
        self._lead: bytes | None = b""
        self._body: CallBody | Fence | None = None

    @property
    def unread(self) -> bytes:
        """Return what has been read, if the turn ends before it is known whether it is a call."""
        return self._taken

    @property
    def input(self) -> str:
        """Return the text of the input, without the fence around it."""
        body = self._body
        if body is None:
            return ""
        text = body.inside if isinstance(body, Fence) else bytes(body.text[: body.held])
        return text.decode(errors="replace")

    @property
    def written(self) -> bool:
        """Return whether an input was written, if only as an empty line."""
        return self._body is not None or b"\n" in (self._lead or b"")

    @property
    def closed(self) -> bool:
        """Return whether the fence around the input was closed, if there is one."""
        return not isinstance(self._body, Fence) or self._body.closed

    def feed(self, data: bytes) -> bytes | None:
        """Read more bytes; return those after the call once it is closed, else None.

        `begun` is False if this is no call; the bytes returned then follow the opener and
        `mention`.
        """
        if self.begun:
            return self._feed_input(data)
        self._taken += data
        if not self.name:
            head = _HEAD.match(self._taken)
            if head is None:
                undecided = len(self._taken) < MAX_ACTION_BYTES and _MAYBE_ACTION.match(self._taken)
                self.begun = None if undecided else False
                return None if undecided else self._taken
            self.name = head[1].decode(errors="replace").strip(_QUOTES)
            data = self._taken[head.end() :]
            self.begun = None if self.name.lower() in self._no_tool else True
            self.name = self.name or " "
        rest = self._feed_input(data)
        if self.begun is None and rest is not None:
            self.begun = False
            size = len(self._taken) - len(rest)
            # The line break may belong to the next label.
            size -= self._taken[:size].endswith(b"\n")
            self.mention, rest = self._taken[:size], self._taken[size:]
        return rest

    def end(self) -> None:
        """Close the call, because the turn has ended."""
        if self._body is not None:
            self._body.end()

    def _feed_input(self, data: bytes) -> bytes | None:
        if self._lead is not None:
            self._lead += data
            content = self._lead.lstrip()
            if not content or content in (b"`", b"``"):
                return None
            if b"\n" in self._lead[: len(self._lead) - len(content)]:
                label = next((text for text in _NEXT if content.startswith(text)), None)
                if label is not None:
                    self.overshoot = label
                    return content[len(label) :]
                if any(text.startswith(content) for text in _NEXT):
                    return None
            self._lead, data = None, content
            self._body = Fence() if content.startswith(b"```") else CallBody(REACT)
        assert self._body is not None
        rest = self._body.feed(data)
        if rest is not None and isinstance(self._body, CallBody):
            self.overshoot = bytes(self._body.text[self._body.held :])
        return rest
