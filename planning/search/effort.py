"""How much a search may do."""

from collections.abc import Callable
from dataclasses import dataclass, field

from caesura.planning.search.memo import Memo

MAX_STAGES = 20_000
"""Stages that a search simulates, by default."""


@dataclass(slots=True)
class Effort:
    """A bound on the stages that a search simulates, and if wanted on its seconds.

    A search that ends by the number of stages is deterministic. One that ends by `seconds`, which
    `clock` counts, depends on the speed of the machine.
    """

    stages: int = MAX_STAGES
    seconds: float = float("inf")
    clock: Callable[[], float] = field(default=lambda: 0.0)
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.clock()

    def share(self, simulated: int) -> float:
        """Return the part that is used up after `simulated` stages, at most 1."""
        elapsed = (self.clock() - self._begin) / self.seconds
        return min(1.0, max(simulated / self.stages, elapsed))

    def spent(self, memo: Memo) -> bool:
        """Return whether the search must end."""
        return self.share(memo.simulated) >= 1.0
