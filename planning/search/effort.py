"""How much a search may do."""

from collections.abc import Callable
from dataclasses import dataclass, field

MAX_STAGES = 1_500
"""Stages that a search simulates beyond those of the rules, by default."""

MAX_REQUESTS = 20_000_000
"""Requests in these stages, by default: a stage costs about as much time as it has requests."""


@dataclass(slots=True)
class Effort:
    """A bound on the stages that a search simulates, and if wanted on its seconds.

    The rules' plans are always made; the bound is on what is searched beyond them. A search that
    ends by the number of `stages` (0: by `MAX_STAGES` and `MAX_REQUESTS`) is deterministic. One
    that ends by `seconds`, which `clock` counts, depends on the speed of the machine.
    """

    stages: int = 0
    seconds: float = float("inf")
    clock: Callable[[], float] = field(default=lambda: 0.0)
    _begin: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin = self.clock()

    def share(self, simulated: int, requests: int) -> float:
        """Return the part that is used up, at most 1.

        `simulated` counts the stages of an application that has so many `requests`.
        """
        stages = self.stages or max(1, min(MAX_STAGES, MAX_REQUESTS // max(1, requests)))
        elapsed = (self.clock() - self._begin) / self.seconds
        return min(1.0, max(simulated / stages, elapsed))
