"""Plans of one application: its requests, what its models cost, and a search."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from caesura.planning.application.requests import Requests
from caesura.planning.plan import Placement, Plan
from caesura.planning.search.follow import Turn, follow
from caesura.planning.search.strategies import (
    DEFAULT_OPTIONS,
    Choice,
    Effort,
    SearchOptions,
    plan_application,
)
from caesura.planning.stage_times import Progress, StageSimulator

DRAWS = 5
"""Draws of all output lengths with which plans are checked, by default."""
MAX_STAGES_BETWEEN = 200
"""Stages that a search may simulate while engines run: far fewer than before a run."""
MIN_GAIN = 0.05
"""How much sooner, as a share, another plan must end for a run to change to it."""


class CostModel(Protocol):
    """What the engines of an application's models cost: times, and memory."""

    @property
    def assumed(self) -> Sequence[str]:
        """Return the models whose costs are assumed instead of measured."""
        ...

    def simulators(self, draws: int, seed: int) -> Sequence[StageSimulator]:
        """Return the times of stages, for each of some draws of the output lengths."""
        ...

    def device_bytes(self, placement: Placement) -> float:
        """Return the memory that a placement takes of each of its devices."""
        ...

    def load_seconds(self, placement: Placement) -> float:
        """Return the seconds until an engine of the placement answers."""
        ...

    def answer_seconds(self, model: str) -> float | None:
        """Return the mean seconds of a model's answer to another model's question, if known."""
        ...


class Planner:
    """Makes plans of an application, before a run and during it.

    The same seed, costs and devices give the same plan.
    """

    def __init__(
        self, requests: Requests, costs: CostModel, *, draws: int = DRAWS, seed: int | None = None
    ) -> None:
        """`seed` is that of the drawn output lengths; None: the application's."""
        self.requests = requests
        self.costs = costs
        self._draws = draws
        self._seed = requests.application.seed if seed is None else seed

    @cached_property
    def simulators(self) -> Sequence[StageSimulator]:
        """The times of stages, for each draw of the output lengths."""
        return self.costs.simulators(self._draws, self._seed)

    def plan(
        self,
        devices: int,
        *,
        progress: Progress | None = None,
        options: SearchOptions = DEFAULT_OPTIONS,
    ) -> Choice:
        """Return the plan for what is left of the application; raises `PlanError`."""
        return plan_application(
            self.requests.application,
            self.requests.all,
            devices,
            self.simulators,
            progress=progress,
            options=options,
        )

    def better(self, plan: Plan, turn: Turn, progress: Progress) -> Plan | None:
        """Return a plan that is expected to end clearly before `plan` goes on from `turn`, or None.

        A run asks for it when models have finished in another order than planned.
        """
        options = SearchOptions(effort=Effort(MAX_STAGES_BETWEEN))
        found = self.plan(plan.devices, progress=progress, options=options).plan
        ends = [follow(plan, each, progress, turn).seconds for each in self.simulators]
        goes_on = sum(ends) / len(ends)
        return found if found.makespan.mean < (1 - MIN_GAIN) * goes_on else None

    def replan(self, progress: Progress, devices: int) -> Plan:
        """Return the best plan from `progress` on, as a run asks for it."""
        return self.plan(devices, progress=progress).plan
