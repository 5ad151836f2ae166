"""The body of a call: the bytes between the text that opens it and the text that closes it.

The engine and the API process follow calls with the same code, so that they agree where a call
ends, however the bytes are cut. Behind an opener, a call begins with JSON, with a tag, or with a
name before either: an answer that explains a format writes its opener without a call behind it.

Calls that are written as lines (ReAct, Yao et al. 2023) have a body of their own. Models vary that
form: labels in bold or in lower case, a blank line between the labels, JSON on the line behind the
label or in a fenced block.
"""

import re
from collections.abc import Iterable

from caesura.intercept.calls.formats import REACT, CallFormat
from caesura.intercept.calls.markers import beginnings, first_hit, held_back

_OUTSIDE = re.compile(rb'["{}\[\]]')
_STRING = re.compile(rb'["\\]')


class JsonText:
    """Follows the first JSON object or array in a text by its brackets and quotes alone.

    The text may be cut anywhere.
    """

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


MAX_HEAD_BYTES = 256
"""Length of the text that decides; a longer name is that of a call."""

_NAME = rb"[^\s<>(){}\[\]|`\"']+"
# A tag of a call's begin: `<function=`, `<arg_key>`, `<invoke `, `<|...` or `<` and U+FF5C.
_TAG = rb"<(?:[fa|\xef]|invoke\s)"
_BEGUN = re.compile(
    rb"\s*(?:```\w*\s*)?[{\[]"
    rb"|\s*(?:" + _NAME + rb"\s*)?" + _TAG + rb"|[\r\n]*" + _NAME + rb"(?:\s*[{\[(]|[\r\n]*</)"
)
# All beginnings of such texts.
_MAYBE = re.compile(
    rb"\s*(?:`{1,2}|```\w*\s*|(?:" + _NAME + rb"\s*)?(?:<(?:i(?:n(?:v(?:o(?:ke?)?)?)?)?)?)?)\Z"
)


def begins_call(behind: bytes) -> bool | None:
    """Return whether the text behind an opener begins a call; None if that is not known yet.

    The result for a text holds for all its continuations, unless it is None.
    """
    head = behind[:MAX_HEAD_BYTES]
    if _BEGUN.match(head):
        return True
    if _MAYBE.match(head):
        return None if len(head) < MAX_HEAD_BYTES else True
    return False


class CallBody:
    """Finds the end of a call; the engine and the API process use it, so that they agree."""

    def __init__(self, form: CallFormat) -> None:
        """`form` must define the end of a call: by `closes`, or by its JSON."""
        self.form = form
        self.text = bytearray()
        """The bytes fed so far, up to the end of the call."""
        self.held = 0
        """The number of bytes of `text` before the marker that closed the call."""
        self.doubtful: int | None = None
        """Where `text` would end if the first ignored marker had closed the call."""
        self.begun: bool | None = None if form.guarded else True
        """Whether a call follows the opener; None if that is not known yet."""
        self.mention = b""
        """Always empty: what stands behind an opener that begins no call is read again."""
        self.head = b""
        """The bytes fed before that is known."""
        self._markers = [text.encode() for text in (form.closes, *form.breaks) if text]
        self._begins = beginnings(self._markers)
        self._json = JsonText(leading=form.body == "line")
        self._window = b""

    def feed(self, data: bytes) -> bytes | None:
        """Read more bytes; return those after the call once it is closed, else None.

        Returns all bytes, and `begun` is False, once no call can follow the opener.
        """
        if self.begun is None:
            self.head += data
            self.begun, data = begins_call(self.head), self.head
        if not self.begun:
            return None if self.begun is None else data
        plain = not self._window and self._begins.search(data) is None
        self._window += data
        if plain:
            end = self._pass(len(data))
            return self._closed(0) if end is not None and not self._markers else None
        while True:
            hit = first_hit(self._window, self._markers)
            if hit is None:
                self._pass(len(self._window) - held_back(self._window, self._markers))
                return None
            self._pass(hit.start)
            size = hit.end - hit.start
            if self._counts(hit.marker):
                return self._closed(size)
            if self.doubtful is None:
                self.doubtful = len(self.text) + size
            self._pass(size)

    def end(self) -> None:
        """Close the call, because the turn has ended."""
        self._pass(len(self._window))
        self._closed(0)

    def _pass(self, size: int) -> int | None:
        """Move bytes from the window to `text`; return where the call's JSON ended, if it did."""
        data, self._window = self._window[:size], self._window[size:]
        end = self._json.feed(data) if self.form.body != "text" else None
        if end is not None and not self._markers:
            data, self._window = data[:end], data[end:] + self._window
        self.text += data
        return end

    def _closed(self, size: int) -> bytes:
        self.held = len(self.text)
        self.text += self._window[:size]
        return self._window[size:]

    def _counts(self, marker: int) -> bool:
        """Return whether a marker closes the call, instead of being part of its body."""
        form, json = self.form, self._json
        if form.body == "line" and marker == 0:
            # JSON strings hold no raw line break, so one inside a string ends the line too.
            return json.in_string or not json.open
        if form.body == "json" or marker > 0:
            return not json.in_string
        if form.inner is None or form.inner[0].encode() not in self.text:
            return True
        return self.text.rstrip().endswith(form.inner[1].encode())


_FENCE_OPENS = re.compile(rb"(`{3,})(.*)", re.DOTALL)
_FENCE_INFO = re.compile(rb"[\w+-]*[ \t\r]*")
_FENCE_CLOSES = re.compile(rb" {0,3}(`{3,})[ \t\r]*")
_FENCE_BREAK = b"Observation:"


class Fence:
    """Finds the end of a fenced block of code that begins with the first byte: a call's input."""

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
_MAYBE_ACTION = re.compile(
    _ACTION + rb"(?:\n\s*(?:" + b"|".join(map(_beginnings, _INPUTS)) + rb"))?\Z"
)
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
