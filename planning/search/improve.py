"""A list of placements, changed step by step while its plan becomes shorter."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations

from caesura.planning.search.drafts import Draft, complete
from caesura.planning.search.problem import PlanError, Problem
from caesura.planning.search.rules.lists import ByList
from caesura.planning.search.sharing import Jobs, merged, regrouped


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
