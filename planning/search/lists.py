"""List scheduling: models start in a fixed order, as devices become free for them.

Longest first (LPT; Graham, 1969) for jobs whose number of devices may be chosen. The number is
chosen as in Turek, Wolf and Yu (1992): for each bound on the longest job, the least device-seconds.
Small models may share devices. A list is changed step by step while its plan becomes shorter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from caesura.planning.plan import Placement
from caesura.planning.search.problem import Draft, PlanError, Problem, complete, room_for
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


Jobs = tuple[Placement, ...]

MAX_SHARING = 4
"""Models that share devices, at most."""


def regrouped(problem: Problem, jobs: Sequence[Placement]) -> Jobs | None:
    """Return the jobs with memory split by who shares devices now; None if it does not suffice.

    Jobs with the same `shares` share; their placements must have the same numbers. A job that is
    left alone gets devices of its own.
    """
    groups: dict[str, list[Placement]] = {}
    for job in jobs:
        if job.shares:
            groups.setdefault(job.shares, []).append(job)
    split: dict[str, Placement] = {}
    for members in groups.values():
        alone = [replace(one, kv_bytes=0, shares="") for one in members]
        shared = problem.simulator.share(alone) if len(alone) > 1 else tuple(alone)
        if not shared or len(shared) > MAX_SHARING:
            return None
        split |= {one.model: one for one in shared}
    return tuple(split.get(job.model, job) for job in jobs)


def merged(problem: Problem, jobs: Jobs) -> Iterator[Jobs]:
    """Yield the lists in which one model more shares the devices of another."""
    for host in jobs:
        group = host.shares or f"with {host.model}"
        for guest in jobs:
            if guest == host or (guest.shares and guest.shares == host.shares):
                continue
            moved = replace(
                guest,
                replicas=host.replicas,
                tensor_parallel=host.tensor_parallel,
                shares=group,
            )
            if not _possible(problem, moved):
                continue
            # The guest starts right behind its host.
            rest = [one for one in jobs if one not in (host, guest)]
            place = sum(one in rest for one in jobs[: jobs.index(host)])
            pair = [replace(host, shares=group), moved]
            found = regrouped(problem, [*rest[:place], *pair, *rest[place:]])
            if found is not None:
                yield found


def _possible(problem: Problem, moved: Placement) -> bool:
    own = replace(moved, kv_bytes=0, shares="")
    return own in problem.choices[moved.model]


def spread(problem: Problem, progress: Progress) -> Jobs | None:
    """Return all models on all devices, where the longest go to the least loaded ones.

    Each model has the fewest devices that hold it, and those of one device share it. None if the
    models do not fit together, or no device would be shared.
    """
    least = [problem.choices[name][0] for name in problem.simulator.unfinished(progress)]
    if len({(one.replicas, one.tensor_parallel) for one in least}) != 1:
        return None
    groups = problem.devices // least[0].devices
    if len(least) <= groups:
        return None
    times = {one: problem.alone(one, progress) for one in least}
    loads = [0.0] * groups
    jobs = []
    for one in sorted(least, key=lambda one: -times[one]):
        place = loads.index(min(loads))
        loads[place] += times[one]
        jobs.append(replace(one, shares=f"group {place}"))
    return regrouped(problem, jobs)


def improved(
    problem: Problem,
    start: Draft,
    chooser: ByList,
    spent: Callable[[], bool],
) -> tuple[ByList, Draft]:
    """Return the list, and its plan, after which no single change makes the plan shorter.

    Changes are tried in a fixed order, round and round, and each that helps is kept at once. It
    also returns when `spent` says so. Raises `PlanError` if the list makes no plan.
    """
    best, draft = chooser, complete(problem, chooser, start)
    changes = list(changed(problem, best.jobs))
    place = failed = 0
    while failed < len(changes) and not spent():
        tried = replace(best, jobs=changes[place % len(changes)])
        other = _tried(problem, tried, start)
        place, failed = place + 1, failed + 1
        if other is not None and other.progress.seconds < draft.progress.seconds:
            best, draft, failed = tried, other, 0
            changes = list(changed(problem, best.jobs))
    return best, draft


def _tried(problem: Problem, chooser: ByList, start: Draft) -> Draft | None:
    try:
        return complete(problem, chooser, start)
    except PlanError:
        return None


def changed(problem: Problem, jobs: Jobs) -> Iterator[Jobs]:
    """Yield the lists with one change.

    A model gets another placement or shares another one's devices, two are swapped, or one goes
    to the end.
    """
    for number, job in enumerate(jobs):
        for other in problem.choices[job.model]:
            if other != job:
                changed_one = regrouped(problem, (*jobs[:number], other, *jobs[number + 1 :]))
                if changed_one is not None:
                    yield changed_one
    for first, second in combinations(range(len(jobs)), 2):
        swapped = list(jobs)
        swapped[first], swapped[second] = jobs[second], jobs[first]
        yield tuple(swapped)
    yield from merged(problem, jobs)
    for number, job in enumerate(jobs[:-1]):
        yield (*jobs[:number], *jobs[number + 1 :], job)
