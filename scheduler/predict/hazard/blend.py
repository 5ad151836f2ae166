"""The share of a model beside the table, by their losses so far (fixed share, log loss).

The mixture of two forecasters by their likelihoods is never worse than the better one by more than
a constant (Vovk 1990). The fixed share lets the weights recover when the better one changes
(Herbster and Warmuth 1998). Every bin has a share of its own for its hazard: a model may know well
which sessions end soon, and nothing of those that go on for long. The log loss of a distribution
is the sum of those of its hazards, so the guarantee holds for the whole.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from caesura.scheduler.predict.hazard.bins import Numbers

RATE = 0.25
"""The weight of a row's loss; below 1, since the rows of one session depend on each other."""

SHARE = 0.0003
"""The share of its weight that each forecaster gives to the other after a row."""

FIRST = 0.05
FLOOR = 1e-4
"""The smallest probability in a loss, which bounds it."""


class Blend:
    """The model's share in the mixture of each of so many hazards, from 0 to 1."""

    def __init__(self, hazards: int) -> None:
        self.shares: Numbers = np.full(hazards, FIRST)

    def mixed(self, of_model: Numbers, of_table: Numbers) -> Numbers:
        """Return the hazards of model and table together."""
        mixed: Numbers = self.shares * of_model + (1 - self.shares) * of_table
        return mixed

    def observe(self, of_model: Numbers, of_table: Numbers, bin_: int, whole: bool) -> None:
        """Learn the hazards that the model and the table gave, and the bin that came.

        If not `whole`, the value is only known to reach the bin.
        """
        gain = np.zeros(len(self.shares))
        gain[:bin_] = _logs(1 - of_model[:bin_]) - _logs(1 - of_table[:bin_])
        if whole and bin_ < len(gain):
            gain[bin_] = _logs(of_model[bin_]) - _logs(of_table[bin_])
        odds = self.shares / (1 - self.shares) * np.exp(RATE * gain)
        told = gain != 0
        self.shares[told] = (SHARE + (1 - 2 * SHARE) * odds / (1 + odds))[told]

    def to_wire(self) -> dict[str, Any]:
        """Return the shares as plain data, which `restore` reads."""
        return {"shares": self.shares.tolist()}

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` and change nothing."""
        given = wire.get("shares") if isinstance(wire, Mapping) else None
        try:
            shares = np.array(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"a model's shares must be numbers, got {given!r:.100}") from error
        if shares.shape != self.shares.shape or not ((shares > 0) & (shares < 1)).all():
            raise ValueError(
                f"a model must have {len(self.shares)} shares between 0 and 1, got {given!r:.100}"
            )
        self.shares = shares


def _logs(chances: Any) -> Any:
    return np.log(np.maximum(chances, FLOOR))
