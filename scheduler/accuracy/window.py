"""The accuracy of the last predictions, live: bounded, with constant work for each pair."""

from collections import deque
from math import nan

WINDOW = 1000
"""The number of last pairs that a window holds."""

BINS = 20
"""Bins of probabilities, from which the window's AUC and calibration error are computed."""


class ChanceWindow:
    """The last pairs of one probability, counted in bins of equal width."""

    def __init__(self, size: int = WINDOW) -> None:
        """Raise `ValueError` for a size below 1."""
        if size < 1:
            raise ValueError(f"a window must hold at least 1 pair, got {size!r}")
        self._size = size
        self._rows: deque[tuple[int, float, float]] = deque()
        self._counts = [[0, 0] for _ in range(BINS)]  # [bin]: events that did not come, that came
        self._predicted = [0.0] * BINS

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, predicted: float, actual: float) -> None:
        """Add a probability, and whether the event came (1.0 or 0.0)."""
        place = max(0, min(BINS - 1, int(predicted * BINS)))
        self._rows.append((place, predicted, actual))
        self._count(place, predicted, actual, 1)
        if len(self._rows) > self._size:
            self._count(*self._rows.popleft(), -1)

    def _count(self, place: int, predicted: float, actual: float, sign: int) -> None:
        self._counts[place][actual > 0.5] += sign
        self._predicted[place] += sign * predicted

    @property
    def auc(self) -> float:
        """Return the area under the ROC curve; pairs in one bin count as half. NaN if undefined."""
        right, missed_below = 0.0, 0
        for missed, came in self._counts:
            right += came * (missed_below + 0.5 * missed)
            missed_below += missed
        pairs = missed_below * sum(came for _, came in self._counts)
        return right / pairs if pairs else nan

    @property
    def calibration_error(self) -> float:
        """Return the mean distance of probabilities from shares, over bins; NaN if empty."""
        if not self._rows:
            return nan
        away = (abs(p - came) for p, (_, came) in zip(self._predicted, self._counts, strict=True))
        return sum(away) / len(self._rows)
