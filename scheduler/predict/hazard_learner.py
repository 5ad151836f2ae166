"""One quantity: its model, its share beside the table, and the rows that are still to learn.

An observation is one row per segment. The rows of a session are known together at its end. They
are learned a few at a time, so that no step of the engine waits for many of them. With each row
some earlier ones are learned again, spread evenly over the memory: a deployment sees only some
thousands of rows, and one pass over them learns too little.

The model's share follows from the losses of both so far (fixed share, log loss). The mixture of two
forecasters by their likelihoods is never worse than the better one by more than a constant (Vovk
1990). The fixed share lets the weights recover when the better one changes (Herbster and Warmuth
1998). Every bin has a share of its own for its hazard: a model may know well which sessions end
soon, and nothing of those that go on for long. The log loss of a distribution is the sum of those
of its hazards, so the guarantee holds for the whole.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from caesura.scheduler.predict.hazard_model import Bins, Features, HazardModel, Numbers

MAX_REMEMBERED_ROWS = 4096
MAX_PENDING_ROWS = 4096
ROWS_AT_ONCE = 4
"""The number of pending rows that are learned at each observation."""

REPEATS = 1
"""The number of remembered rows that are learned again with each new one."""

GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class Row:
    """What was known of a segment: its features, and the hazards of model and table."""

    features: Features
    of_model: Numbers
    of_table: Numbers


@dataclass(frozen=True, slots=True)
class _Known:
    """A row and its bin; if not `whole`, the value is only known to reach the bin."""

    row: Row
    bin: int
    whole: bool


class Learner:
    """Learns one quantity in `bins` by a model with `knots` weights per feature."""

    def __init__(self, bins: Bins, knots: int) -> None:
        self.bins = bins
        self.blend = Blend(bins.hazards)
        self._model = HazardModel(bins.hazards, knots)
        self._pending: deque[_Known] = deque(maxlen=MAX_PENDING_ROWS)
        self._memory: list[_Known] = []
        self._oldest = 0
        self._turn = 0.0

    def row(self, features: Features, table: Numbers) -> Row:
        """Return the row of a segment; `table[i]` is the table's chance of at least `edges[i]`."""
        of_table = self.bins.hazards_of(table)
        return Row(features, self._model.hazards(features, of_table), of_table)

    def mixed(self, row: Row) -> Numbers:
        """Return the hazards by model and table together."""
        return self.blend.mixed(row.of_model, row.of_table)

    def observe(self, row: Row, value: float, whole: bool = True) -> None:
        """Add the value of a row; if not `whole`, the true value is at least this."""
        self._pending.append(_Known(row, self.bins.bin_of(value), whole))

    def learn(self, rows: int = ROWS_AT_ONCE) -> None:
        """Learn the next pending rows."""
        for _ in range(min(rows, len(self._pending))):
            known = self._pending.popleft()
            row = known.row
            self.blend.observe(row.of_model, row.of_table, known.bin, known.whole)
            self._learn(known)
            self._remember(known)
            for _ in range(REPEATS):
                self._turn = (self._turn + GOLDEN) % 1.0
                self._learn(self._memory[int(self._turn * len(self._memory))])

    def _learn(self, known: _Known) -> None:
        row = known.row
        self._model.learn(row.features, row.of_table, known.bin, known.whole)

    def _remember(self, known: _Known) -> None:
        if len(self._memory) < MAX_REMEMBERED_ROWS:
            self._memory.append(known)
        else:
            self._memory[self._oldest] = known
            self._oldest = (self._oldest + 1) % MAX_REMEMBERED_ROWS

    def to_wire(self) -> dict[str, Any]:
        """Return model and share as plain data; rows are not kept."""
        return {"model": self._model.to_wire(), "blend": self.blend.to_wire()}

    def restore(self, wire: Mapping[str, Any]) -> None:
        """Load the data that `to_wire` wrote, or raise `ValueError` for any other data."""
        if not isinstance(wire, Mapping):
            raise ValueError(f"a learned quantity must be an object, got {wire!r:.100}")
        self.blend.restore(wire.get("blend", {}))
        self._model.restore(wire.get("model", {}))


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
