"""Removal of stop texts from the visible text; the engine itself stops at the token."""

from caesura.intercept.calls.markers import first_hit, held_back


class StopText:
    """Returns text up to the first stop text, and holds back what may still become one."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = [text.encode() for text in stops]
        self._window = b""
        self.hit = False

    def push(self, text: str) -> str:
        """Return the part of the text that cannot belong to a stop text."""
        if self.hit or not self._stops:
            return "" if self.hit else text
        self._window += text.encode()
        found = first_hit(self._window, self._stops)
        if found is not None:
            self.hit = True
            return self._window[: found.start].decode()
        kept = held_back(self._window, self._stops)
        ready = self._window[: len(self._window) - kept]
        self._window = self._window[len(ready) :]
        return ready.decode()

    def end(self) -> str:
        """Return the text that was held back, at the end of the turn."""
        text, self._window = self._window, b""
        return "" if self.hit else text.decode()
