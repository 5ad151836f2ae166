"""A quantity in bins: its hazards, its survival at their edges, and its quantiles."""

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
