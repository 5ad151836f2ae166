"""A list of placements, changed step by step while its plan becomes shorter."""

from collections.abc import Callable, Iterator
from itertools import combinations

from caesura.planning.plan import Placement
from caesura.planning.search.drafts import Draft, complete
from caesura.planning.search.problem import PlanError, Problem
from caesura.planning.search.rules.lists import ByList

Jobs = tuple[Placement, ...]


def improved(
    problem: Problem,
    start: Draft,
    chooser: ByList,
    spent: Callable[[], bool],
) -> tuple[ByList, Draft]:
    """Return the list, and its plan, after which no single change makes the plan shorter.

    Changes are tried in a fixed order, and each that helps is kept at once. It also returns when
    `spent` says so.
    """
    best, draft = chooser, complete(problem, chooser, start)
    again = True
    while again and not spent():
        again = False
        for jobs in changed(problem, best.jobs):
            if spent():
                break
            tried = ByList(jobs, best.pipelined, best.grows)
            try:
                other = complete(problem, tried, start)
            except PlanError:
                continue
            if other.progress.seconds < draft.progress.seconds:
                best, draft, again = tried, other, True
                break
    return best, draft


def changed(problem: Problem, jobs: Jobs) -> Iterator[Jobs]:
    """Yield the lists with one change: another placement of a model, or two models swapped."""
    for number, job in enumerate(jobs):
        for other in problem.choices[job.model]:
            if other != job:
                yield (*jobs[:number], other, *jobs[number + 1 :])
    for first, second in combinations(range(len(jobs)), 2):
        swapped = list(jobs)
        swapped[first], swapped[second] = jobs[second], jobs[first]
        yield tuple(swapped)
    for number, job in enumerate(jobs[:-1]):
        yield (*jobs[:number], *jobs[number + 1 :], job)
