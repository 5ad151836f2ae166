"""A linear model of the hazards of a quantity in bins, learned online with AdaGrad.

The hazard of bin b is P(value in b | value in b or beyond) = sigmoid(l_b + sum of x_i w_ib). l_b
is the logit of the table's hazard, so that a model that has learned nothing is the table. The
weight w_ib of a feature is a curve over the bins: an interpolation between a few knots, each of
which is learned. So a word that announces the end weighs on the near bins, and a large context on
the far ones, with few weights. An observation that was cut off teaches only the bins that it
outlived.

The features are a sparse vector of a session's facts. A number enters by its logarithm, as a point
between two knots: each of them is a feature, and the nearer one has the larger value. So a linear
model learns a curve of every number. Words enter by their hashed buckets, and first words also by
their share of all calls.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from caesura.scheduler.predict.facts import Facts

Numbers = NDArray[np.float64]
TINY = 1e-9


class Bins:
    """Bins [e0, e1), [e1, e2), ... from e0 = 0; the last one is open.

    The hazard of a bin is the probability of its values among those that reach it. Every bin but
    the last has one. Raises `ValueError` for edges that do not begin with 0, do not ascend, or are
    fewer than two.
    """

    def __init__(self, edges: Sequence[float]) -> None:
        if len(edges) < 2 or edges[0] != 0 or list(edges) != sorted(set(edges)):
            raise ValueError(f"edges must ascend from 0 and be at least two, got {edges!r}")
        self.edges = tuple(edges)
        last = edges[-1] - edges[-2]
        self._ends: Numbers = np.array([*edges, edges[-1] + 2 * last], dtype=np.float64)

    @property
    def hazards(self) -> int:
        """Return the number of hazards, one less than of bins."""
        return len(self.edges) - 1

    def bin_of(self, value: float) -> int:
        """Return the index of the bin that holds a value of at least 0."""
        return bisect_right(self.edges, value) - 1

    def hazards_of(self, survival: Numbers) -> Numbers:
        """Return the hazards, where `survival[i]` is the chance of at least `edges[i]`."""
        alive = np.maximum(survival[1:], TINY) / np.maximum(survival[:-1], TINY)
        hazards: Numbers = np.clip(1 - alive, 0.0, 1.0)
        return hazards

    def survival_of(self, hazards: Numbers) -> Numbers:
        """Return the chance of at least `edges[i]`, for each edge."""
        survival: Numbers = np.append(1.0, np.cumprod(1 - hazards))
        return survival

    def remaining(self, hazards: Numbers, seen: float, count: int) -> Numbers:
        """Return `count` equally likely values beyond `seen`, less `seen`, ascending.

        Values are spread evenly within a bin, and the last bin is as wide as two of the one before
        it. If no probability lies beyond `seen`, the result is empty.
        """
        cumulative = np.append(1 - self.survival_of(hazards), 1.0)
        below = float(np.interp(seen, self._ends, cumulative))
        if 1 - below <= TINY or seen >= self._ends[-1]:
            return np.empty(0)
        wanted = below + (1 - below) * (np.arange(count) + 0.5) / count
        values: Numbers = np.interp(wanted, cumulative, self._ends) - seen
        return np.maximum(values, 0.0)


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


LEARNING_RATE = 0.05
DECAY = 3e-3
"""The pull of the weights of active features towards 0, at each update."""

FIRST_SQUARES = 1.0
MIN_HAZARD = 2e-3
"""Bounds the hazards of a table, which may be 0 or 1 where it has seen few sessions."""

MAX_LOGIT = 9.0
MAX_WEIGHT = 100.0
_TYPE = np.dtype("<f4")


class HazardModel:
    """Learns the hazards of one quantity; `knots` weights per feature span the `hazards`."""

    def __init__(self, hazards: int, knots: int) -> None:
        self._basis = _basis(hazards, knots)
        knots = self._basis.shape[1]
        self._weights = np.zeros((FEATURES, knots), _TYPE)
        self._squares = np.full((FEATURES, knots), FIRST_SQUARES, _TYPE)

    def learn(self, features: Features, table: Numbers, bin_: int, whole: bool) -> None:
        """Learn a value in this bin; if not `whole`, the value is only known to reach the bin."""
        errors = self.hazards(features, table)
        errors[bin_ + 1 :] = 0
        if bin_ < len(errors):
            errors[bin_] = errors[bin_] - 1 if whole else 0
        at = features.indices
        steps = np.outer(features.values, errors @ self._basis) + DECAY * self._weights[at]
        self._squares[at] += steps * steps
        self._weights[at] -= LEARNING_RATE * steps / np.sqrt(self._squares[at])

    def hazards(self, features: Features, table: Numbers) -> Numbers:
        """Return the hazards of all bins but the last, given those of the table."""
        shares = np.clip(table, MIN_HAZARD, 1 - MIN_HAZARD)
        logits = np.log(shares / (1 - shares))
        logits = logits + self._basis @ (features.values @ self._weights[features.indices])
        hazards: Numbers = 1 / (1 + np.exp(-np.clip(logits, -MAX_LOGIT, MAX_LOGIT)))
        return hazards

    def to_wire(self) -> dict[str, Any]:
        """Return the state as plain data, which `restore` reads."""
        return {"weights": _packed(self._weights), "squares": _packed(self._squares)}

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        if not isinstance(wire, Mapping):
            raise ValueError(f"a hazard model must be an object, got {wire!r:.100}")
        weights = _unpacked(wire.get("weights"), self._weights.shape)
        squares = _unpacked(wire.get("squares"), self._squares.shape)
        if np.abs(weights).max() > MAX_WEIGHT or squares.min() <= 0:
            raise ValueError(
                f"the weights of a hazard model must be within {MAX_WEIGHT:g}, and its squares"
                f" above 0, got {np.abs(weights).max():g} and {squares.min():g}"
            )
        self._weights, self._squares = weights, squares


def _basis(hazards: int, knots: int) -> NDArray[np.float32]:
    """Return the share of each knot in each hazard, of shape (hazards, knots)."""
    if knots >= hazards:
        return np.eye(hazards, dtype=_TYPE)
    places = np.linspace(0, knots - 1, hazards)
    distances = np.abs(places[:, None] - np.arange(knots))
    shares: NDArray[np.float32] = np.maximum(0, 1 - distances).astype(_TYPE)
    return shares


def _packed(array: NDArray[np.float32]) -> str:
    return base64.b64encode(array.tobytes()).decode()


def _unpacked(text: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    try:
        data = base64.b64decode(text, validate=True)
        array = np.frombuffer(data, _TYPE).reshape(shape).copy()
    except (TypeError, ValueError, binascii.Error) as error:
        raise ValueError(f"not the numbers of a hazard model of shape {shape}: {error}") from error
    if not np.isfinite(array).all():
        raise ValueError("the numbers of a hazard model must be finite")
    return array
