"""The features of a session's segment: a sparse vector of its facts.

A number enters by its logarithm, as a point between two knots: each of them is a feature, and the
nearer one has the larger value. So a linear model learns a curve of every number. Words enter by
their hashed buckets, and first words also by their share of all calls.
"""

from dataclasses import dataclass
from math import log2, sqrt
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.predict.facts import Facts

KNOTS = 24
"""The number of knots of a number; one knot is a factor of two."""

KINDS = 64
KINDS_BY_CALLS = 512
MAX_COUNTED_CALLS = 15
WORDS = 1024
HEADS = 512

_NUMBERS = 9
_KIND = 1 + _NUMBERS * KNOTS
_KIND_BY_CALLS = _KIND + KINDS
_WORD = _KIND_BY_CALLS + KINDS_BY_CALLS
_HEAD = _WORD + WORDS
_HEAD_SHARE = _HEAD + HEADS

FEATURES = _HEAD_SHARE + HEADS
"""The number of features; the first one is always 1."""


@dataclass(frozen=True, slots=True)
class Features:
    """A sparse vector: the values of the features at these indices, which may repeat."""

    indices: NDArray[np.int32]
    values: NDArray[np.float32]


def features_of(kind: str, facts: Facts) -> Features:
    """Return the features of a segment of a session of this kind."""
    indices, values = [0], [1.0]
    for place, number in enumerate(_numbers(facts)):
        at = min(log2(1 + max(0.0, number)), KNOTS - 1.001)
        knot = int(at)
        indices += (1 + place * KNOTS + knot, 2 + place * KNOTS + knot)
        values += (1 - at + knot, at - knot)
    hashed = crc32(kind.encode(errors="replace"))
    by_calls = hashed + 7919 * min(facts.calls, MAX_COUNTED_CALLS)
    indices += (_KIND + hashed % KINDS, _KIND_BY_CALLS + by_calls % KINDS_BY_CALLS)
    values += (1.0, 1.0)
    _add_words(facts, indices, values)
    return Features(np.array(indices, np.int32), np.array(values, np.float32))


def _numbers(facts: Facts) -> tuple[float, ...]:
    """Return the numbers of the facts, in units in which 1 is small."""
    return (
        facts.calls,
        facts.context_tokens / 64,
        facts.seconds / 2,
        facts.segment_tokens / 4,
        facts.segment_mean / 4,
        facts.result_tokens / 4,
        facts.result_mean / 4,
        facts.errors,
        15 * facts.errors / max(1, facts.calls),
    )


def _add_words(facts: Facts, indices: list[int], values: list[float]) -> None:
    if facts.words:
        indices += [_WORD + word % WORDS for word in facts.words]
        values += [2 / sqrt(len(facts.words))] * len(facts.words)
    calls = sum(count for _, count in facts.heads)
    for head, count in facts.heads:
        indices += (_HEAD + head % HEADS, _HEAD_SHARE + head % HEADS)
        values += (log2(1 + count) / 2, count / calls)
