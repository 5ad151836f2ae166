"""Which of several data-parallel engines serves a request: where the least has to be done first.

Each engine has a KV cache of its own. A follow-up costs least where the KV of its context is,
unless that engine is so busy that recomputing elsewhere is sooner. Both are counted in tokens:

    cost(engine) = tokens that it lacks + tokens that it will prefill first
                 + turns that it decodes * the mean length of an answer

What an engine holds is remembered by the digests of chunks (`Trail`), in a memory as large as its
KV cache, which forgets the longest unused first. vLLM's prefix cache names its blocks the same way,
so two contexts share KV as far as their chunks are equal.
"""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MAX_CHUNKS = 65_536
"""Most chunks that are remembered of an engine, 4 million tokens in about 10 MB."""

MEAN_WEIGHT = 0.05
"""Weight of the last answer in the mean length of answers."""

CHUNK_TOKENS = 64
"""Tokens of a chunk: the grain at which an engine's KV is known."""


class Trail:
    """The digests of a context's chunks, made as its tokens come."""

    def __init__(self, salt: str | None = None) -> None:
        """Begin a context; one with another `salt` shares no KV with it."""
        self.chunks: list[bytes] = []
        self._last = hashlib.blake2b((salt or "").encode(), digest_size=16).digest()
        self._open: array[int] = array("I")

    def extend(self, tokens: Sequence[int]) -> list[bytes]:
        """Add tokens behind the context; return the chunks that they completed."""
        self._open.extend(tokens)
        new: list[bytes] = []
        full = len(self._open) - len(self._open) % CHUNK_TOKENS
        for at in range(0, full, CHUNK_TOKENS):
            chunk = self._open[at : at + CHUNK_TOKENS].tobytes()
            self._last = hashlib.blake2b(chunk, key=self._last, digest_size=16).digest()
            new.append(self._last)
        del self._open[:full]
        self.chunks += new
        return new


Why = Literal["only", "kept", "new", "busy"]
"""Why an engine was chosen: there is no other; it has most of the KV; none has any; or the engine
that has most of the KV is too busy."""


class Routed(NamedTuple):
    """The engine chosen for a request, and how many of its first tokens have KV there."""

    engine: int
    held_tokens: int
    why: Why


@dataclass(slots=True)
class _Engine:
    """What is known of one engine."""

    chunks: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict)
    prefill_tokens: int = 0
    turns: int = 0
    routed: int = 0


class Router:
    """Chooses engines for requests, and keeps count of what they hold and do."""

    def __init__(self, engines: int, kv_tokens: int) -> None:
        """Create it for so many engines, each with a KV cache of `kv_tokens` tokens."""
        self._engines = [_Engine() for _ in range(engines)]
        self._capacity = max(1, min(MAX_CHUNKS, kv_tokens // CHUNK_TOKENS))
        self._answer_tokens = 0.0

    def choose(self, trail: Trail, tokens: int) -> Routed:
        """Return the engine where a context of `tokens` tokens is computed soonest.

        Of equals, the one that has had the fewest requests is chosen.
        """
        if len(self._engines) == 1:
            return Routed(0, self._held(self._engines[0], trail), "only")
        held = [self._held(engine, trail) for engine in self._engines]
        costs = [
            (self._cost(engine, tokens - kept), engine.routed, number)
            for number, (engine, kept) in enumerate(zip(self._engines, held, strict=True))
        ]
        chosen = min(costs)[-1]
        self._engines[chosen].routed += 1
        most = max(held)
        why: Why = "new" if not most else "kept" if held[chosen] == most else "busy"
        return Routed(chosen, held[chosen], why)

    def begins(self, engine: int, tokens: int) -> None:
        """Count a turn that an engine begins, which has `tokens` tokens to prefill."""
        self._engines[engine].turns += 1
        self._engines[engine].prefill_tokens += tokens

    def decodes(self, engine: int, tokens: int) -> None:
        """Count that a turn's `tokens` tokens are prefilled: its first token has come."""
        self._engines[engine].prefill_tokens -= tokens

    def ends(self, engine: int, decoded: int) -> None:
        """Count the end of a turn, which decoded so many tokens."""
        self._engines[engine].turns -= 1
        if decoded:
            weight = MEAN_WEIGHT if self._answer_tokens else 1.0
            self._answer_tokens += weight * (decoded - self._answer_tokens)

    def holds(self, engine: int, chunks: Sequence[bytes]) -> None:
        """Remember that an engine has the KV of these chunks; the last of them goes first."""
        known = self._engines[engine].chunks
        for chunk in reversed(chunks):
            known[chunk] = None
            known.move_to_end(chunk)
        while len(known) > self._capacity:
            known.popitem(last=False)

    @property
    def turns(self) -> list[int]:
        """The numbers of turns that the engines have begun and not ended."""
        return [engine.turns for engine in self._engines]

    def _held(self, engine: _Engine, trail: Trail) -> int:
        held = 0
        for chunk in trail.chunks:
            if chunk not in engine.chunks:
                break
            held += CHUNK_TOKENS
        return held

    def _cost(self, engine: _Engine, missing: int) -> float:
        return missing + engine.prefill_tokens + engine.turns * self._answer_tokens
