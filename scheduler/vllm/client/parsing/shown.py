"""What a turn shows: the answer and the reasoning, and the log probabilities of their tokens."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from caesura.intercept.calls.events import ReasoningDelta, TextDelta, TokenLogprob
from caesura.intercept.calls.thinking import REGIONS

_CLOSERS = [closer.encode() for closer in (*REGIONS.values(), "<|channel|>final<|message|>")]
MIN_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot express, as in vLLM's server."""


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


class ShownLogprobs:
    """Finds the tokens of the shown text among those that were decoded.

    A turn's shown text is what the model wrote, without reasoning, calls, markers and stop texts.
    """

    def __init__(self, most: int, bytes_of: Callable[[int], bytes]) -> None:
        """Create it for the tokens of one turn.

        `most` likely tokens are reported beside each; `bytes_of` returns the bytes of a token.
        """
        self._most = most
        self._bytes_of = bytes_of
        self._written = bytearray()
        self._tokens: list[tuple[int, TokenLogprob]] = []
        """The tokens that are not shown yet, each with the place of its end."""
        self._at = 0
        self._behind_reasoning = False

    @classmethod
    def of(cls, most: int | None, bytes_of: Callable[[int], bytes]) -> Self | None:
        """Return one for a turn, or None if the caller wants no log probabilities."""
        return None if most is None else cls(most, bytes_of)

    def push(self, token_ids: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> None:
        """Add decoded tokens, before the events that a parser makes of them.

        `logprobs` are vLLM's objects for each place, by token id.
        """
        for token_id, beside in zip(token_ids, logprobs, strict=True):
            ranked = sorted(beside.items(), key=lambda item: -item[1].logprob)[: self._most]
            top = tuple(self._one(one, value) for one, value in ranked)
            token = self._one(token_id, beside[token_id], top)
            self._written += token.data
            self._tokens.append((len(self._written), token))

    def call_ended(self) -> None:
        """Record that a call was read, so that later text is not in the tokens so far."""
        self._at = len(self._written)

    def shown(self, text: str) -> tuple[TokenLogprob, ...]:
        """Return the tokens that end within the next shown text."""
        data = text.encode()
        if self._behind_reasoning:
            self._behind_reasoning = False
            self._pass_closer()
        start = self._written.find(data, self._at)
        if start < 0:
            return ()
        self._at = start + len(data)
        ready = tuple(token for end, token in self._tokens if start < end <= self._at)
        self._tokens = [(end, token) for end, token in self._tokens if end > self._at]
        return ready

    def reasoned(self, text: str) -> None:
        """Record reasoning, so that no later text is looked for within it."""
        data = text.strip().encode()
        self._at = max(self._written.find(data, self._at), self._at) + len(data)
        self._behind_reasoning = True

    def _pass_closer(self) -> None:
        found = [(self._written.find(closer, self._at), len(closer)) for closer in _CLOSERS]
        place, size = min((each for each in found if each[0] >= 0), default=(self._at, 0))
        self._at = place + size

    def _one(self, token_id: int, value: Any, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        data = self._bytes_of(token_id)
        logprob = max(MIN_LOGPROB, float(value.logprob))
        return TokenLogprob(data.decode(errors="replace"), logprob, data, top)
