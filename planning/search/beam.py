"""Beam search over stages: each partial plan counts as what a simple rule makes of it."""

from collections.abc import Callable, Iterator, Sequence

from caesura.planning.plan import Placement
from caesura.planning.search.drafts import Chooser, Draft, complete, lengthen, room_for
from caesura.planning.search.problem import PlanError, Problem
from caesura.planning.search.rules.greedy import greedy, grown
from caesura.planning.search.rules.heuristics import min_heuristic
from caesura.planning.search.rules.lists import ByList, longest_first

WIDTH = 3
"""Partial plans that are continued."""


def beam(
    problem: Problem, start: Draft, spent: Callable[[], bool], width: int = WIDTH
) -> Iterator[Draft]:
    """Yield finished drafts: those that rules make of the partial plans kept after each stage.

    Each partial plan is lengthened by the stages that the rules choose, and by those with one
    change. Kept are the `width` partial plans whose finished drafts are shortest.
    """
    kept = [start]
    while kept and not spent():
        found: list[tuple[float, int, Draft]] = []
        seen: set[tuple[tuple[Placement, ...], ...]] = set()
        for draft in kept:
            for longer in _lengthened(problem, draft, spent):
                stages = tuple(tuple(sorted(stage.placements)) for stage in longer.stages)
                if stages in seen:
                    continue
                seen.add(stages)
                finished = rolled_out(problem, longer)
                if finished is not None:
                    yield finished
                    if problem.simulator.unfinished(longer.progress):
                        found.append((finished.progress.seconds, len(found), longer))
        kept = [draft for _, _, draft in sorted(found, key=lambda one: one[:2])[:width]]


def rolled_out(problem: Problem, draft: Draft) -> Draft | None:
    """Return the shortest plan that list scheduling and min-heuristic make of a partial plan."""
    jobs = longest_first(problem, draft.progress)
    finished = []
    rules: list[Chooser] = [ByList(jobs), ByList(jobs, pipelined=False)]
    for rule in rules:
        try:
            finished.append(complete(problem, rule, draft))
        except PlanError:
            continue
    return min(finished, key=lambda one: one.progress.seconds, default=None)


def _lengthened(problem: Problem, draft: Draft, spent: Callable[[], bool]) -> Iterator[Draft]:
    tried: set[tuple[Placement, ...]] = set()
    for stage in _stages(problem, draft):
        key = tuple(sorted(stage))
        if key in tried or not stage or spent():
            continue
        tried.add(key)
        try:
            yield lengthen(problem, draft, stage)
        except PlanError:
            continue


def _stages(problem: Problem, draft: Draft) -> Iterator[tuple[Placement, ...]]:
    """Yield the next stages to consider: those of the rules, and those with one change."""
    progress = draft.progress
    unfinished = problem.simulator.unfinished(progress)
    running = tuple(one for one in progress.loaded if one.model in unfinished)
    jobs = longest_first(problem, progress)
    chosen = [
        ByList(jobs)(problem, progress, ()),
        ByList(jobs)(problem, progress, running),
        greedy(problem, progress, running),
        greedy(problem, progress),
        min_heuristic(problem, progress, running),
    ]
    yield from chosen
    for stage in dict.fromkeys(chosen[:3]):
        yield from _neighbours(problem, draft, stage)


def _neighbours(
    problem: Problem, draft: Draft, stage: Sequence[Placement]
) -> Iterator[tuple[Placement, ...]]:
    """Yield the stage with one model less, smaller, larger, exchanged or more."""
    for now in stage:
        rest = tuple(one for one in stage if one != now)
        yield rest
        yield from (
            larger
            for larger in grown(problem, draft.progress, rest)
            if room_for(problem.devices, larger) >= 0
        )
    yield from grown(problem, draft.progress, stage)
