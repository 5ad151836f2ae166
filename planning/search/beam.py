"""Beam search over stages: each partial plan counts as what a simple rule makes of it."""

from collections.abc import Callable, Iterator, Sequence

from caesura.planning.plan import Placement
from caesura.planning.search.problem import Chooser, Draft, PlanError, Problem, complete, lengthen
from caesura.planning.search.samullm import grown

WIDTH = 3
"""Partial plans that are continued."""


def beam(
    problem: Problem,
    start: Draft,
    rules: Sequence[Chooser],
    spent: Callable[[], bool],
    width: int = WIDTH,
) -> Iterator[Draft]:
    """Yield finished drafts: those that rules make of the partial plans kept after each stage.

    Each partial plan is lengthened by the stages that the rules choose, and by those with one
    change. Kept are the `width` partial plans whose finished drafts are shortest.
    """
    kept = [start]
    while kept and not spent():
        found: list[tuple[float, Draft]] = []
        seen: set[tuple[tuple[Placement, ...], ...]] = set()
        for draft in kept:
            for longer in _lengthened(problem, draft, rules, spent):
                stages = tuple(tuple(sorted(stage.placements)) for stage in longer.stages)
                if stages in seen:
                    continue
                seen.add(stages)
                finished = _finished(problem, longer, rules)
                if finished is not None:
                    yield finished
                    if problem.simulator.unfinished(longer.progress):
                        found.append((finished.progress.seconds, longer))
        kept = [draft for _, draft in sorted(found, key=lambda one: one[0])[:width]]


def _finished(problem: Problem, draft: Draft, rules: Sequence[Chooser]) -> Draft | None:
    """Return the shortest plan that the rules make of a partial plan; None if none can."""
    finished = []
    for rule in rules:
        try:
            finished.append(complete(problem, rule, draft))
        except PlanError:
            continue
    return min(finished, key=lambda one: one.progress.seconds, default=None)


def _lengthened(
    problem: Problem, draft: Draft, rules: Sequence[Chooser], spent: Callable[[], bool]
) -> Iterator[Draft]:
    tried: set[tuple[Placement, ...]] = set()
    for stage in _stages(problem, draft, rules):
        key = tuple(sorted(stage))
        if key in tried or not stage or spent():
            continue
        tried.add(key)
        try:
            yield lengthen(problem, draft, stage)
        except PlanError:
            continue


def _stages(
    problem: Problem, draft: Draft, rules: Sequence[Chooser]
) -> Iterator[tuple[Placement, ...]]:
    """Yield the next stages to consider: those of the rules, and those with one change."""
    progress = draft.progress
    unfinished = problem.simulator.unfinished(progress)
    running = tuple(one for one in progress.loaded if one.model in unfinished)
    chosen = [rule(problem, progress, kept) for rule in rules for kept in ((), running)]
    chosen = list(dict.fromkeys(chosen))
    yield from chosen
    for stage in chosen:
        yield from _neighbours(problem, draft, stage)


def _neighbours(
    problem: Problem, draft: Draft, stage: Sequence[Placement]
) -> Iterator[tuple[Placement, ...]]:
    """Yield the stage with one model more, less, smaller, larger or exchanged."""
    yield from grown(problem, draft.progress, stage)
    for now in stage:
        rest = tuple(one for one in stage if one != now)
        yield rest
        yield from grown(problem, draft.progress, rest)
