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
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

from caesura.scheduler.policy.routing import Asked, Load, Prefixes, Router

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

    @property
    def prefixes(self) -> Prefixes:
        """The chunks with the lengths of the context up to their ends."""
        return tuple((each, CHUNK_TOKENS * at) for at, each in enumerate(self.chunks, 1))

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


class _Memory:
    """The keys of what an engine has in its KV cache, with their tokens."""

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, int] = OrderedDict()
        self._tokens = 0

    def held(self, prefixes: Prefixes) -> int:
        """Return how many of a prompt's first tokens are there."""
        held = 0
        for key, tokens in prefixes:
            if key not in self.known:
                break
            held = tokens
        return held

    def put(self, parts: Sequence[tuple[Hashable, int]], most_tokens: int) -> None:
        """Remember parts of a context with their tokens; the last of them goes first."""
        known = self.known
        for key, tokens in reversed(parts):
            self._tokens += tokens - known.get(key, 0)
            known[key] = tokens
            known.move_to_end(key)
        while len(known) > MAX_CHUNKS or self._tokens > most_tokens:
            self._tokens -= known.popitem(last=False)[1]


class LeastWork(Router):
    """Chooses the engine that has the least to do first, and remembers what engines hold."""

    def __init__(self) -> None:
        self._memories: defaultdict[str, _Memory] = defaultdict(_Memory)
        self._routed: Counter[str] = Counter()
        self._answer_tokens = 0.0
        self._most_tokens = 0

    def choose(self, asked: Asked, loads: Sequence[Load]) -> int:
        """Return the engine where a request is computed soonest."""
        return self.weigh(asked, loads).engine

    def weigh(self, asked: Asked, loads: Sequence[Load]) -> Routed:
        """Return the engine where a request is computed soonest, and what speaks for it.

        Of equals, the one that has had the fewest requests is chosen.
        """
        self._most_tokens = min(load.most_tokens for load in loads)
        held = [self._memories[load.name].held(asked.prefixes) for load in loads]
        if len(loads) == 1:
            return Routed(0, held[0], "only")
        costs = [
            (self._cost(load, asked.tokens - kept), self._routed[load.name], place)
            for place, (load, kept) in enumerate(zip(loads, held, strict=True))
        ]
        chosen = min(costs)[-1]
        most = max(held)
        why: Why = "new" if not most else "kept" if held[chosen] == most else "busy"
        return Routed(chosen, held[chosen], why)

    def served(self, asked: Asked, name: str) -> None:
        """Count a request of an engine, which will have the KV of its prompt."""
        self._routed[name] += 1
        before = (0, *(tokens for _, tokens in asked.prefixes))
        ends = zip(before, asked.prefixes, strict=False)
        self.holds(name, [(key, tokens - begin) for begin, (key, tokens) in ends])

    def holds(self, name: str, parts: Sequence[tuple[Hashable, int]]) -> None:
        """Remember that an engine has the KV of further parts of a context."""
        self._memories[name].put(parts, self._most_tokens)

    def ended(self, decoded_tokens: int) -> None:
        """Learn the length of an answer."""
        if decoded_tokens:
            weight = MEAN_WEIGHT if self._answer_tokens else 1.0
            self._answer_tokens += weight * (decoded_tokens - self._answer_tokens)

    def _cost(self, load: Load, missing: int) -> float:
        return missing + load.prefill_tokens + load.requests * self._answer_tokens
