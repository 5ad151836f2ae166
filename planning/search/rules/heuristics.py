"""The baselines of SamuLLM's experiments (section 5): max-heuristic and min-heuristic."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from caesura.planning.plan import Placement
from caesura.planning.search.drafts import room_for
from caesura.planning.search.problem import Problem
from caesura.planning.search.rules.greedy import throughput_of
from caesura.planning.stage_times import Progress

MAX_PARTITIONS = 512
"""Even partitions whose throughput min-heuristic compares, at most."""


def max_heuristic(
    problem: Problem, progress: Progress, kept: Sequence[Placement] = ()
) -> tuple[Placement, ...]:
    """Return all devices for the first model whose inputs are there, as it finishes soonest.

    A model that asks others as tools shares the devices with them, since it cannot run alone.
    """
    if kept:
        return tuple(kept)
    tasks = problem.open_tasks(progress)
    for model in problem.simulator.unfinished(progress):
        if problem.runs_alone(model, tasks):
            most = max(choice.devices for choice in problem.choices[model])
            full = [choice for choice in problem.choices[model] if choice.devices == most]
            return (min(full, key=lambda choice: problem.alone(choice, progress)),)
    return min_heuristic(problem, progress)


def min_heuristic(
    problem: Problem, progress: Progress, kept: Sequence[Placement] = ()
) -> tuple[Placement, ...]:
    """Return as many models as possible, with the devices split as evenly as possible.

    Of several such splits it takes the one with the highest throughput.
    """
    free = room_for(problem.devices, kept)
    models = _as_many_as_fit(problem, progress, kept, free)
    best = tuple(kept)
    highest = -1.0
    for split in islice(even_splits(problem, models, free), MAX_PARTITIONS):
        stage = (*kept, *split)
        throughput = throughput_of(problem.simulator.run(stage, progress))
        if throughput > highest:
            best, highest = stage, throughput
    return best


def _as_many_as_fit(
    problem: Problem, progress: Progress, kept: Sequence[Placement], free: int
) -> list[str]:
    """Return the models of the stage beside those kept: those first whose inputs are ready."""
    placed = [one.model for one in kept]
    chosen: list[str] = []
    tasks = problem.open_tasks(progress)
    found = True
    while found:
        found = False
        for model in problem.simulator.unfinished(progress):
            group = (problem.choices[model][0], *problem.beside(model, placed, tasks))
            least = sum(one.devices for one in group)
            if model in placed or least > free or not problem.ready(model, placed, tasks):
                continue
            placed += [one.model for one in group]
            chosen += [one.model for one in group]
            free -= least
            found = True
    return chosen


def even_splits(
    problem: Problem, models: Sequence[str], free: int
) -> Iterator[tuple[Placement, ...]]:
    """Yield the placements of the models with shares of the devices that differ by at most 1.

    A model that needs more than its share gets what it needs, and the others share what is left.
    """
    if not models:
        return
    least = {model: problem.choices[model][0].devices for model in models}
    wide = {model: need for model, need in least.items() if need > free // len(models)}
    while wide:
        rest = [model for model in models if model not in wide]
        share = (free - sum(wide.values())) // len(rest) if rest else free
        more = {model: least[model] for model in rest if least[model] > share}
        if not more:
            break
        wide |= more
    even = [model for model in models if model not in wide]
    left = free - sum(wide.values())
    share, extra = divmod(left, len(even)) if even else (0, 0)
    for larger in combinations(even, extra):
        shares = {model: share + (model in larger) for model in even} | wide
        yield from product(*(_of_size(problem, model, shares) for model in models))


def _of_size(problem: Problem, model: str, shares: Mapping[str, int]) -> list[Placement]:
    """Return the model's placements with the most devices within its share."""
    within = [one for one in problem.choices[model] if one.devices <= shares[model]]
    most = max(one.devices for one in within)
    return [one for one in within if one.devices == most]
