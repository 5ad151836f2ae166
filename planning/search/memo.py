"""A stage simulator that remembers what it has simulated."""

from collections.abc import Sequence

from caesura.planning.plan import Placement
from caesura.planning.stage_times import Progress, StageSimulator, StageTimes

_Key = tuple[int, frozenset[Placement], bool]


class Memo(StageSimulator):
    """The times of another simulator; a stage that is asked for again is not simulated again.

    Progress is told apart by identity, so a search continues from the very `after` of a stage.
    `simulated` is the number of stages that the other simulator was asked for.
    """

    def __init__(self, simulator: StageSimulator) -> None:
        self._simulator = simulator
        self._times: dict[_Key, StageTimes] = {}
        self._unfinished: dict[int, Sequence[str]] = {}
        self._alive: dict[int, Progress] = {}  # An identity is unique only while its object lives.
        self.simulated = 0

    def valid(self, placement: Placement) -> bool:
        """Return whether the placement fits."""
        return self._simulator.valid(placement)

    def share(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Return the placements with the memory of the same devices split; empty if too small."""
        return self._simulator.share(placements)

    def unfinished(self, progress: Progress) -> Sequence[str]:
        """Return the models that have requests left."""
        found = self._unfinished.get(id(progress))
        if found is None:
            self._alive[id(progress)] = progress
            found = self._unfinished[id(progress)] = self._simulator.unfinished(progress)
        return found

    def run(
        self, placements: Sequence[Placement], progress: Progress, *, to_the_end: bool = False
    ) -> StageTimes:
        """Return the times of the stage."""
        key = (id(progress), frozenset(placements), to_the_end)
        found = self._times.get(key)
        if found is None:
            self.simulated += 1
            self._alive[id(progress)] = progress
            found = self._simulator.run(placements, progress, to_the_end=to_the_end)
            self._times[key] = found
        return found
