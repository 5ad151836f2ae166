"""Small models that share devices: lists of placements whose groups start together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from caesura.planning.plan import Placement
from caesura.planning.search.problem import Problem
from caesura.planning.stage_times import Progress

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
