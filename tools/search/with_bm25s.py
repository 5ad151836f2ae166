"""An index by bm25s, which computes scores at build time and keeps them as sparse arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bm25s  # type: ignore[import-untyped]
import numpy as np

from caesura.tools.search.derived import Row
from caesura.tools.search.results import split_words

_NUMBERS = "passages.npy"
_SCORES = "scores"
_TITLE_TIMES = 2


class Bm25sIndex:
    """A bm25s index in memory."""

    def __init__(self, scores: bm25s.BM25 | None, numbers: "np.ndarray[Any, Any]") -> None:
        self._scores = scores
        self._numbers = numbers

    def find(self, words: Sequence[str], limit: int) -> list[int]:
        """Return the numbers of the best passages, best first."""
        index = self._scores
        known = [] if index is None else [word for word in words if word in index.vocab_dict]
        if index is None or not known:
            return []
        count = min(limit, len(self._numbers))
        places, scores = index.retrieve([known], k=count, show_progress=False)
        return [
            int(self._numbers[place])
            for place, score in zip(places[0], scores[0], strict=True)
            if score > 0
        ]


def build(directory: Path, rows: Sequence[Row]) -> None:
    """Build the index of these passages in a directory. Blocking."""
    np.save(directory / _NUMBERS, np.array([number for number, _, _ in rows], dtype=np.int64))
    texts = [
        split_words(f"{f'{title} ' * _TITLE_TIMES}{text}".casefold()) for _, title, text in rows
    ]
    if any(texts):
        scores = bm25s.BM25()
        scores.index(texts, show_progress=False)
        scores.save(directory / _SCORES, show_progress=False)


def load(directory: Path) -> Bm25sIndex:
    """Return the index in a directory. Blocking."""
    numbers = np.load(directory / _NUMBERS)
    if not (directory / _SCORES).is_dir():
        return Bm25sIndex(None, numbers)
    return Bm25sIndex(bm25s.BM25.load(directory / _SCORES, show_progress=False), numbers)
