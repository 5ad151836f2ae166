"""What a call holds, from behind its opener up to where it is closed."""

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.json_text import JsonText
from caesura.intercept.calls.markers import beginnings, first_hit, held_back


class CallBody:
    """Reads a call in the engine and in the API process alike, so that both see the same end."""

    def __init__(self, form: CallFormat) -> None:
        """`form` must say how a call ends: by `closes`, or by its JSON."""
        self.form = form
        self.text = bytearray()
        """All that was fed, up to the end of the call."""
        self.held = 0
        """How many bytes of `text` stand before the marker that closed the call."""
        self.doubtful: int | None = None
        """Where `text` would end if the first marker that did not count had counted."""
        self._markers = [text.encode() for text in (form.closes, *form.breaks) if text]
        self._begins = beginnings(self._markers)
        self._json = JsonText(leading=form.body == "line")
        self._window = b""

    def feed(self, data: bytes) -> bytes | None:
        """Read more; return what stands behind the call once it is closed."""
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
        """The turn is over: what was fed is all there is."""
        self._pass(len(self._window))
        self._closed(0)

    def _pass(self, size: int) -> int | None:
        """Take bytes off the window; return where the call's JSON ended, if it did."""
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
        """Whether a marker closes the call, or is part of what it holds."""
        form, json = self.form, self._json
        if form.body == "line" and marker == 0:
            # A line break within a string is no JSON, so that it ends the line after all.
            return json.in_string or not json.open
        if form.body == "json" or marker > 0:
            return not json.in_string
        if form.inner is None or form.inner[0].encode() not in self.text:
            return True
        return self.text.rstrip().endswith(form.inner[1].encode())
