"""What a turn shows: the answer and the reasoning, without the white space around markers."""

from collections.abc import Iterable, Iterator

from caesura.intercept.calls.events import ReasoningDelta, TextDelta


class ShownText:
    """Takes the text of one turn in order, and yields it as answer or as reasoning.

    White space between the begin of the turn and thinking belongs to neither. The same holds for
    white space around the reasoning, and for line breaks between thinking and the answer.
    """

    def __init__(self, thinks: bool) -> None:
        """Create it; `thinks` says that regions of thinking may come."""
        self.text = ""
        """The answer so far."""
        self.reasoning = ""
        """The reasoning so far, with an empty line between two regions."""
        self._held = ""
        self._at_begin = thinks
        self._behind_thinking = self._begins_region = False

    def answer(self, text: str) -> Iterator[TextDelta]:
        """Add text of the answer."""
        if self._behind_thinking:
            text = text.lstrip("\r\n")
        elif self._at_begin:
            text = self._held + text
            self._held = text if text.isspace() else ""
        if text and not self._held:
            self._behind_thinking = self._at_begin = False
            self.text += text
            yield TextDelta(text)

    def think(self, text: str) -> Iterator[ReasoningDelta]:
        """Add text of the reasoning."""
        if self._begins_region:
            text = text.lstrip()
        text = self._held + text
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown:
            if self._begins_region and self.reasoning:
                shown = f"\n\n{shown}"
            self._begins_region = False
            self.reasoning += shown
            yield ReasoningDelta(shown)

    def enter(self) -> None:
        """Begin a region of thinking."""
        self._held = ""
        self._begins_region, self._at_begin = True, False

    def leave(self) -> None:
        """End a region of thinking."""
        self._held = ""
        self._behind_thinking, self._begins_region = True, False

    def flush(self) -> Iterator[TextDelta]:
        """Yield the white space at the begin of a turn that turned out to hold no thinking."""
        held = self._held if self._at_begin else ""
        self._at_begin = False
        if held:
            self._held = ""
            self.text += held
            yield TextDelta(held)


class Spans:
    """The places of the reasoning among the bytes of a turn."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def add(self, start: int, end: int) -> None:
        """Add the bytes from `start` to `end`, which follow those added before."""
        if self._spans and self._spans[-1][1] == start:
            start = self._spans.pop()[0]
        if end > start:
            self._spans.append((start, end))

    def tokens(self, sizes: Iterable[int], at: int) -> int:
        """Return how many tokens end within the spans.

        `sizes` are the tokens' lengths in bytes; the first of them begins at byte `at`.
        """
        spans, count = iter(self._spans), 0
        span = next(spans, None)
        for size in sizes:
            at += size
            while span is not None and at > span[1]:
                span = next(spans, None)
            if span is None:
                break
            count += at > span[0]
        return count
