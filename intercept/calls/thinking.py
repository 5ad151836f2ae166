"""Where a model thinks: between markers that its family writes, such as `<think>`.

What stands there is no call, since the model may still change its mind. The engine, which pauses
at calls, and the API process, which runs them, follow a turn with the same `Thinking`.
"""

from collections.abc import Iterable

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.markers import Hit, beginnings, first_hit, held_back

REGIONS = {
    "<think>": "</think>",
    "[THINK]": "[/THINK]",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|plamo:begin_think:plamo|>": "<|plamo:end_think:plamo|>",
}
"""What opens thinking and what closes it, in vLLM's reasoning parsers whose markers are fixed."""

_OPENS = [text.encode() for text in REGIONS]
_CLOSES = [text.encode() for text in REGIONS.values()]

MARKERS = (*_OPENS, *_CLOSES)
_BEGINS = beginnings(MARKERS)


def open_at_end(prompt: str) -> str:
    """Return the opener with which a rendered prompt ends, spaces aside; empty if with none."""
    end = prompt.rstrip()
    return next((opener for opener in REGIONS if end.endswith(opener)), "")


class Thinking:
    """Follows one turn: it is thinking from an opener that counts up to its closer.

    An opener counts where nothing but spaces stands before it in its line, or between it and a
    call. Elsewhere it is a word that the model mentions. A region that is never closed lasts to
    the end of the turn.
    """

    def __init__(self, formats: Iterable[CallFormat], opener: str = "") -> None:
        """`opener` is one of `REGIONS` if the turn begins within thinking."""
        formats = tuple(formats)
        self._known = bool(formats) and all(form.thinks for form in formats)
        self._closer = REGIONS[opener].encode() if opener and self._known else None
        self.blank = True
        """Whether an opener counts here: the line is blank so far, or a call has just ended."""

    @property
    def inside(self) -> bool:
        """Whether the model thinks."""
        return self._closer is not None

    @property
    def markers(self) -> list[bytes]:
        """What to look for: openers, or the closer."""
        if self._closer is not None:
            return [self._closer]
        return _OPENS if self._known else []

    def next(self, window: bytes) -> Hit | None:
        """Return the next marker in `window`; whether it counts, `pass_marker` tells."""
        if _BEGINS.search(window) is None:
            return None
        return first_hit(window, self.markers)

    def held_back(self, window: bytes) -> int:
        """Return how many bytes at the end of `window` may still grow into a marker."""
        return 0 if _BEGINS.search(window) is None else held_back(window, self.markers)

    def passed(self, text: bytes) -> None:
        """Take note of text up to which the turn has been read."""
        if self.blank or b"\n" in text:
            line = text[text.rfind(b"\n") + 1 :]
            self.blank = (self.blank or len(line) < len(text)) and not line.strip()

    def passed_call(self) -> None:
        """Take note that a call ends here."""
        self.blank = True

    def pass_marker(self, hit: Hit) -> bool:
        """Return whether the marker behind what has been passed counts; if so, it is passed."""
        if self._closer is not None:
            self._closer, self.blank = None, True
            return True
        if self.blank:
            self._closer = _CLOSES[hit.marker]
        return self.blank

    def stop(self) -> None:
        """Take note that the rest of the turn is a call, so that no marker counts any more."""
        self._known = False
