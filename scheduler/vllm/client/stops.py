"""Stop texts in the API process; the engine itself stops at the token that completes one."""

from caesura.intercept.calls.markers import first_hit, held_back


class StopCut:
    """Ends the model's output before the stop text at which the engine has stopped it.

    This happens before any parser reads the output: a stop text may open a call, or end the turn
    within one. Only the engine knows which stop texts count, so others pass.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [text.encode() for text in stops]
        self._window = b""
        self.hit: str | None = None
        """The stop text that ended the output."""

    def push(self, text: str, ended: bool, at_stop: bool) -> str:
        """Return the output that cannot belong to a stop text.

        `ended`: the output ends with this text. `at_stop`: a stop text has ended it.
        """
        self._window += text.encode()
        size = len(self._window)
        found = first_hit(self._window, self._stops) if at_stop else None
        if found is not None:
            size, ended = found.start, True
            self.hit = self._stops[found.marker].decode()
        elif not ended:
            size -= held_back(self._window, self._stops)
        ready, self._window = self._window[:size], b"" if ended else self._window[size:]
        return ready.decode()


class StopText:
    """Returns visible text up to the first stop text, and holds back what may become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [text.encode() for text in stops]
        self._window = b""
        self.hit: str | None = None
        """The stop text that was found."""

    def push(self, text: str) -> str:
        """Return the part of the text that cannot belong to a stop text."""
        if self.hit is not None or not self._stops:
            return text if self.hit is None else ""
        self._window += text.encode()
        found = first_hit(self._window, self._stops)
        if found is not None:
            self.hit = self._stops[found.marker].decode()
            return self._window[: found.start].decode()
        kept = held_back(self._window, self._stops)
        ready = self._window[: len(self._window) - kept]
        self._window = self._window[len(ready) :]
        return ready.decode()

    def end(self) -> str:
        """Return the text that was held back, at the end of the turn."""
        text, self._window = self._window, b""
        return text.decode() if self.hit is None else ""
