"""The body of a call: the bytes between the text that opens it and the text that closes it."""

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.json_text import JsonText
from caesura.intercept.calls.markers import beginnings, first_hit, held_back
from caesura.intercept.calls.mentions.behind import begins_call


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
