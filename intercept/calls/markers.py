"""Find the next of several markers in a stream of bytes, however the stream is cut.

In most vocabularies the opener of a call is a token of its own. A model that explains it may write
the same text with other tokens. The engine sees which token completes an opener. The API process
parses text, so a character is put into spelled openers there, and parsers do not find them.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from caesura.intercept.calls.formats import CallFormat
from caesura.intercept.calls.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Hit:
    """A marker found in a window: its index in the list of markers, and the bytes [start, end)."""

    marker: int
    start: int
    end: int


def beginnings(markers: Sequence[bytes]) -> re.Pattern[bytes]:
    """Return a pattern for the first bytes of the markers.

    No marker begins in a text where the pattern finds nothing. This holds for most tokens, and
    the check takes a tenth of the time of a search for each marker.
    """
    first = {marker[:1] for marker in markers}
    return re.compile(b"|".join(map(re.escape, sorted(first))) if first else b"(?!)")


def first_hit(window: bytes, markers: Sequence[bytes]) -> Hit | None:
    """Return the marker that ends first in `window`; of several, the one that starts first.

    This order makes the result independent of the cut: a scanner that read one byte at a time
    would find the same marker.
    """
    best: Hit | None = None
    for index, marker in enumerate(markers):
        start = window.find(marker)
        if start < 0:
            continue
        end = start + len(marker)
        if best is None or (end, start) < (best.end, best.start):
            best = Hit(index, start, end)
    return best


def held_back(window: bytes, markers: Sequence[bytes]) -> int:
    """Return how many bytes at the end of `window` may still grow into a marker."""
    longest = min(max(map(len, markers), default=1) - 1, len(window))
    for size in range(longest, 0, -1):
        if any(marker.startswith(window[-size:]) for marker in markers):
            return size
    return 0


@lru_cache(maxsize=64)
def all_beginnings(markers: tuple[bytes, ...]) -> frozenset[bytes]:
    """Return all beginnings of the markers, without the markers themselves and the empty text."""
    return frozenset(text[:size] for text in markers for size in range(1, len(text)))


MARK = "\ufdd0"
"""A noncharacter of Unicode, which no text holds."""

_MARK = MARK.encode()


def unmarked(data: bytes) -> bytes:
    """Return text as the model wrote it, without the marks of spelled openers."""
    return data.replace(_MARK, b"")


def own_markers(formats: Iterable[CallFormat], vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the ids of markers outside calls that are tokens of their own, by their text.

    Only that token is the marker then. The same text in other tokens is a mention.
    """
    texts = {
        text.encode()
        for form in formats
        for text in (*form.opens, *form.section, *form.results)
        if text
    }
    found = ((text, vocabulary.own_token(text)) for text in sorted(texts))
    return {text: token_id for text, token_id in found if token_id is not None}


class SpelledOpeners:
    """Marks the spelled openers of one turn's text."""

    def __init__(self, formats: Iterable[CallFormat], vocabulary: Vocabulary | None) -> None:
        """Without a `vocabulary` no text is marked."""
        vocabulary = vocabulary or Vocabulary([])
        self._own = own = own_markers(formats, vocabulary)
        self._bytes_of = vocabulary.bytes_of
        self._pattern = re.compile(b"|".join(map(re.escape, own))) if own else None
        self._last = re.compile(b"|".join({re.escape(text[-1:]) for text in own}))
        self._longest = max(map(len, own), default=0)
        self._tokens = b""
        self._text = b""
        self._real: deque[bool] = deque()
        """For each opener in the tokens whose text has not been read: whether it is a token."""

    def push(self, text: str, token_ids: Sequence[int]) -> str:
        """Return more of the text, with a `MARK` before the last character of spelled openers.

        The text may come later than its tokens, but not before them.
        """
        if self._pattern is None:
            return text
        for token_id in token_ids:
            data = self._bytes_of(token_id)
            ends, self._tokens = self._ends(self._tokens, data)
            self._real.extend(token_id == self._own.get(data) for _ in ends)
        data = text.replace(MARK, "\N{REPLACEMENT CHARACTER}").encode()
        ends, self._text = self._ends(self._text, data)
        for end in reversed([end for end in ends if not self._is_real()]):
            last = len(data[:end].decode()[-1].encode())
            data = data[: end - last] + MARK.encode() + data[end - last :]
        return data.decode()

    def _is_real(self) -> bool:
        return self._real.popleft() if self._real else True

    def _ends(self, before: bytes, data: bytes) -> tuple[list[int], bytes]:
        """Return where openers end in `data`, and the text that may begin the next one."""
        assert self._pattern is not None
        window = before + data
        ends: list[int] = []
        if self._last.search(data) is not None:
            start = 0
            for found in self._pattern.finditer(window):
                start = found.end()
                ends.append(start - len(before))
            window = window[start:]
        return ends, window[-self._longest + 1 :] if self._longest > 1 else b""
