"""The tokens of a context as digests of chunks, each over all tokens up to its end.

vLLM's prefix cache names its blocks the same way, so two contexts share KV as far as their chunks
are equal.
"""

import hashlib
from array import array
from collections.abc import Sequence

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
