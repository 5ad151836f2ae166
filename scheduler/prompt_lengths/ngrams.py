"""Hashed words of a prompt, so that a model holds no text of it."""

import re
from itertools import pairwise
from math import log1p, sqrt
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

BUCKETS = 2**15
"""The number of weights of the linear model, for each output."""

NUMBERS = 8
"""The first buckets, which hold measures of the prompt instead of words."""

MAX_CHARACTERS = 4096
"""The length of a prompt's end that is read: about 512 tokens' (SSJF, section 3.2), or more."""

MAX_WORDS = 1024

_WORD = re.compile(r"\w+|[^\w\s]")


def words_of(prompt: str) -> list[str]:
    """Return the last words and signs of a prompt, in lower case; at most `MAX_WORDS`."""
    return _WORD.findall(prompt[-MAX_CHARACTERS:].lower())[-MAX_WORDS:]


def word_ids(prompt: str, size: int, most: int) -> list[int]:
    """Return hashes in [1, size) of the last `most` words of a prompt."""
    return [1 + _hash(word) % (size - 1) for word in words_of(prompt)[-most:]]


def features_of(prompt: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the buckets of a prompt's words and pairs of words, ascending, and their values.

    A word's value is the root of its count, and all words together have the norm 1. The first
    buckets hold a constant and the sizes of the prompt.
    """
    words = words_of(prompt)
    terms = words + [f"{first} {second}" for first, second in pairwise(words)]
    begin = [f"^{word}" for word in words[:3]]
    hashes = [NUMBERS + _hash(term) % (BUCKETS - NUMBERS) for term in terms + begin]
    buckets, counts = np.unique(np.array(hashes, dtype=np.int64), return_counts=True)
    values = np.sqrt(counts)
    values /= max(1.0, sqrt(float(counts.sum())))
    return (
        np.concatenate([np.arange(NUMBERS), buckets]),
        np.concatenate([_numbers(prompt, words), values]),
    )


def _numbers(prompt: str, words: list[str]) -> NDArray[np.float64]:
    """Return `NUMBERS` measures of a prompt, each of about 0 to 1."""
    return np.array(
        [
            1.0,
            log1p(len(prompt)) / 10,
            log1p(len(words)) / 10,
            log1p(prompt.count("\n")) / 5,
            log1p(sum(word.isdigit() for word in words)) / 5,
            log1p(prompt.count("?")) / 3,
            log1p(prompt.count("`")) / 5,
            float(prompt.rstrip().endswith("?")),
        ]
    )


def _hash(term: str) -> int:
    return crc32(term.encode(errors="replace"))  # a cut text may hold half a character
