"""List scheduling: models start in a fixed order, as devices become free for them.

Longest first (LPT; Graham, 1969) for jobs whose number of devices may be chosen. The number is
chosen as in Turek, Wolf and Yu (1992): for each bound on the longest job, the least device-seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from caesura.planning.plan import Placement
from caesura.planning.search.drafts import Draft, room_for
from caesura.planning.search.problem import Problem
from caesura.planning.stage_times import Progress


@dataclass(frozen=True, slots=True)
class ByList:
    """The chooser of a list: running models stay, and free devices go to the list's next ones.

    With `pipelined` a model may start beside those whose outputs it needs, and without it starts
    when they have finished. With `grows` devices that no model of the list can use go to running
    ones that finish earlier with them, although they are loaded again.
    """

    jobs: tuple[Placement, ...]
    pipelined: bool = True
    grows: bool = True

    def __call__(
        self, problem: Problem, progress: Progress, kept: Sequence[Placement]
    ) -> tuple[Placement, ...]:
        """Return the placements of the stage that begins with `progress`."""
        unfinished = problem.simulator.unfinished(progress)
        stage = [one for one in kept or progress.loaded if one.model in unfinished]
        tasks = problem.open_tasks(progress)
        waiting = False
        for job in self.jobs:
            placed = [one.model for one in stage]
            if job.model in placed or job.model not in unfinished:
                continue
            group = (job, *problem.beside(job.model, placed, tasks))
            fits = room_for(problem.devices, [*stage, *group]) >= 0
            if fits and problem.ready(job.model, placed if self.pipelined else (), tasks):
                stage += group
            else:
                waiting = True
        if self.grows and not kept and not waiting:
            stage = _grown(problem, progress, stage)
        return tuple(stage)


def longest_first(problem: Problem, progress: Progress) -> tuple[Placement, ...]:
    """Return a list of the unfinished models: each with its devices, the longest first."""
    times = {
        choice: problem.alone(choice, progress)
        for model in problem.simulator.unfinished(progress)
        for choice in problem.choices[model]
    }
    best: list[Placement] = []
    lowest = float("inf")
    for bound in sorted(set(times.values())):
        jobs = _within(problem, progress, times, bound)
        if not jobs or bound >= lowest:
            continue
        area = sum(times[one] * one.devices for one in jobs) / problem.devices
        # No schedule of these jobs is shorter than the longest of them, or than an even share.
        if max(bound, area) < lowest:
            best, lowest = jobs, max(bound, area)
    return tuple(sorted(best, key=lambda one: -times[one]))


def jobs_of(draft: Draft) -> tuple[Placement, ...]:
    """Return a plan as a list: each model with its first placement, in the order of its start."""
    first: dict[str, Placement] = {}
    for stage in draft.stages:
        for one in stage.placements:
            first.setdefault(one.model, one)
    return tuple(first.values())


def _within(
    problem: Problem, progress: Progress, times: dict[Placement, float], bound: float
) -> list[Placement]:
    """Return each model's placement of the least device-seconds that takes at most `bound`."""
    jobs = []
    for model in problem.simulator.unfinished(progress):
        fast = [one for one in problem.choices[model] if times[one] <= bound]
        if not fast:
            return []
        jobs.append(min(fast, key=lambda one: times[one] * one.devices))
    return jobs


def _grown(problem: Problem, progress: Progress, stage: Sequence[Placement]) -> list[Placement]:
    """Return the stage with its free devices given to the models that would end last."""
    chosen = list(stage)
    last_first = sorted(stage, key=lambda one: -problem.alone(one, progress))
    for now in last_first:
        most = room_for(problem.devices, [one for one in chosen if one != now])
        fitting = [one for one in problem.choices[now.model] if one.devices <= most]
        # The widest of each tensor-parallel size: simulating the others costs more than it gains.
        widest = {one.tensor_parallel: one for one in fitting}
        larger = [one for one in widest.values() if one.devices > now.devices]
        best = min([now, *larger], key=lambda one: problem.alone(one, progress))
        chosen[chosen.index(now)] = best
    return chosen
