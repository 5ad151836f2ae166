"""Regions of thinking: text between markers of the model's family, such as `<think>`.

Text in such a region is never a call, since the model may still change its mind. The engine
pauses at calls and the API process runs them; both follow a turn with the same `Thinking`.
"""

from collections.abc import Collection, Iterable

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
"""Openers and closers of thinking, as in vLLM's reasoning parsers with fixed markers."""

_OPENS = [text.encode() for text in REGIONS]
MARKERS = (*_OPENS, *(text.encode() for text in REGIONS.values()))
_BEGINS = beginnings(MARKERS)


def regions_shown(template: str, vocabulary: Collection[str]) -> tuple[str, ...]:
    """Return the openers of the regions that a model writes, by its template and its vocabulary.

    A region counts if the chat template holds its opener or its closer, or if both are tokens.
    """
    return tuple(
        opener
        for opener, closer in REGIONS.items()
        if opener in template
        or closer in template
        or (opener in vocabulary and closer in vocabulary)
    )


def open_at_end(prompt: str) -> str:
    """Return the opener at the end of a rendered prompt, spaces aside; empty if there is none."""
    end = prompt.rstrip()
    return next((opener for opener in REGIONS if end.endswith(opener)), "")


def without_thinking(text: bytes, formats: Iterable[CallFormat]) -> bytes:
    """Return a turn's text without its regions of thinking.

    The text may begin within a region: it does so if a closer comes before any opener.
    """
    first = first_hit(text, MARKERS)
    begins_inside = first is not None and first.marker >= len(_OPENS)
    opener = tuple(REGIONS)[first.marker - len(_OPENS)] if first and begins_inside else ""
    thinking, kept = Thinking(formats, opener), b""
    while (hit := thinking.next(text)) is not None:
        if not thinking.inside:
            kept += text[: hit.start]
            thinking.passed(text[: hit.start])
        end = hit.end
        if not thinking.pass_marker(hit):
            end = hit.start + 1
            kept += text[hit.start : end]
            thinking.passed(text[hit.start : end])
        text = text[end:]
    return kept if thinking.inside else kept + text


class Thinking:
    """Follows one turn and knows whether the model is thinking.

    A region begins at an opener with nothing but spaces before it, in its line or since a call.
    Elsewhere an opener is a word that the model mentions. A region that is never closed lasts to
    the end of the turn.
    """

    def __init__(
        self, formats: Iterable[CallFormat], opener: str = "", apart: Collection[str] = ()
    ) -> None:
        """`opener` is a key of `REGIONS` if the turn begins within thinking, else empty.

        With `formats` that think, all regions count; otherwise those of which `apart` holds the
        opener. The text in the regions of `apart` is kept apart from the answer.
        """
        formats = tuple(formats)
        thinks = bool(formats) and all(form.thinks for form in formats)
        self._names = tuple(REGIONS) if thinks else tuple(apart)
        self._opens = _OPENS if thinks else [name.encode() for name in self._names]
        self._apart = frozenset(apart)
        self._region = opener if opener in self._names else ""
        self._closer = REGIONS[opener].encode() if self._region else None
        self.blank = True
        """Whether an opener counts here: the line is blank so far, or a call has just ended."""

    @property
    def inside(self) -> bool:
        """Return whether the model is thinking."""
        return self._closer is not None

    @property
    def keeps_apart(self) -> bool:
        """Return whether the text of some regions is kept apart from the answer."""
        return bool(self._apart)

    @property
    def is_apart(self) -> bool:
        """Return whether the text here is kept apart from the answer."""
        return self._region in self._apart

    @property
    def markers(self) -> list[bytes]:
        """Return the markers to look for: the openers, or the closer of the open region."""
        return self._opens if self._closer is None else [self._closer]

    def next(self, window: bytes) -> Hit | None:
        """Return the next marker in `window`; `pass_marker` decides whether it counts."""
        if _BEGINS.search(window) is None:
            return None
        return first_hit(window, self.markers)

    def held_back(self, window: bytes) -> int:
        """Return how many bytes at the end of `window` may still grow into a marker."""
        return 0 if _BEGINS.search(window) is None else held_back(window, self.markers)

    def passed(self, text: bytes) -> None:
        """Record text outside markers that has been read."""
        if self.blank or b"\n" in text:
            line = text[text.rfind(b"\n") + 1 :]
            self.blank = (self.blank or len(line) < len(text)) and not line.strip()

    def passed_call(self) -> None:
        """Record that a call ends here."""
        self.blank = True

    def pass_marker(self, hit: Hit) -> bool:
        """Return whether the marker after the recorded text counts, and enter or leave thinking."""
        if self._closer is not None:
            self._region, self._closer, self.blank = "", None, True
            return True
        if self.blank:
            self._region = self._names[hit.marker]
            self._closer = REGIONS[self._region].encode()
        return self.blank

    def stop(self) -> None:
        """Ignore all later markers, because the rest of the turn is a call."""
        self._opens = []
