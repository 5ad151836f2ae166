"""Log probabilities of the tokens of the text that a turn shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from caesura.intercept.calls.events import TokenLogprob
from caesura.intercept.calls.thinking import REGIONS

_CLOSERS = [closer.encode() for closer in (*REGIONS.values(), "<|channel|>final<|message|>")]
MIN_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot express, as in vLLM's server."""


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
