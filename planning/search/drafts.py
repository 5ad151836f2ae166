"""Plans in the making: stages are appended until every model has finished."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.search.problem import PlanError, Problem
from caesura.planning.stage_times import Progress


@dataclass(frozen=True, slots=True)
class Draft:
    """The stages chosen so far, and the progress at the end of the last one."""

    progress: Progress
    stages: tuple[Stage, ...] = ()

    def plan(self, strategy: str, devices: int) -> Plan:
        """Return the plan of a finished draft, with the makespan of this one draw of lengths."""
        seconds = self.progress.seconds
        return Plan(strategy, devices, self.stages, Makespan(seconds, seconds, seconds))


class Chooser(Protocol):
    """A rule that chooses the models of the next stage."""

    def __call__(
        self, problem: Problem, progress: Progress, kept: Sequence[Placement]
    ) -> tuple[Placement, ...]:
        """Return the placements of the stage that begins with `progress`.

        Those in `kept` are among them: their models run already and are not stopped.
        """
        ...


def lengthen(problem: Problem, draft: Draft, placements: Sequence[Placement]) -> Draft:
    """Return the draft with one stage more. Raises `PlanError` if the stage can do nothing."""
    before = problem.simulator.unfinished(draft.progress)
    _demand_asked(problem, draft.progress, placements)
    times = problem.simulator.run(placements, draft.progress)
    after = set(problem.simulator.unfinished(times.after))
    if len(times.after.finished) == len(draft.progress.finished):
        names = ", ".join(one.model for one in placements) or "no models"
        raise PlanError(
            f"a stage of {names} finishes no request, and {', '.join(before)} are unfinished;"
            " check the tasks' needs, and give more devices if their models must run together"
        )
    finishes = tuple(model for model in before if model not in after)
    stage = Stage(tuple(placements), times.seconds, finishes)
    return Draft(times.after, (*draft.stages, stage))


def _demand_asked(problem: Problem, progress: Progress, placements: Sequence[Placement]) -> None:
    """Raise `PlanError` for a stage without a model that one of its models asks as a tool."""
    placed = {one.model for one in placements}
    tasks = problem.open_tasks(progress)
    for model in placed:
        for missing in sorted(problem.companions(model, tasks) - placed):
            raise PlanError(
                f"a stage of {', '.join(sorted(placed))} lacks {missing}, which {model} asks; give"
                " more devices"
            )


def complete(problem: Problem, chooser: Chooser, draft: Draft, *, preempt: bool = True) -> Draft:
    """Return the draft with the stages that the rule chooses until every model has finished.

    Without `preempt` a model keeps its placement from its first stage to its end (section 5.5).
    """
    while unfinished := problem.simulator.unfinished(draft.progress):
        last = draft.stages[-1].placements if draft.stages and not preempt else ()
        kept = tuple(one for one in last if one.model in unfinished)
        draft = lengthen(problem, draft, chooser(problem, draft.progress, kept))
    return draft


def room_for(devices: int, placements: Sequence[Placement]) -> int:
    """Return the devices that the placements leave."""
    return devices - Stage(tuple(placements)).devices
