"""SamuLLM's greedy search (section 4.2, Algorithm 1), and the baselines of its experiments."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, product

from caesura.planning.plan import Placement
from caesura.planning.search.problem import Problem, room_for
from caesura.planning.stage_times import Progress, StageTimes


def greedy(
    problem: Problem, progress: Progress, kept: Sequence[Placement] = ()
) -> tuple[Placement, ...]:
    """Return the stage that grows by the most throughput per added device (lines 3 to 23).

    A step adds a model whose inputs are ready, or gives more devices to a model of the stage. It
    ends when no step is left or each would lower the throughput T_E = FLOPs_E / t_E.
    """
    stage = tuple(kept)
    best = _throughput(problem, stage, progress)
    while True:
        steps = []
        for candidate in grown(problem, progress, stage, kept):
            added = room_for(problem.devices, stage) - room_for(problem.devices, candidate)
            throughput = _throughput(problem, candidate, progress)
            steps.append(((throughput - best) / added, throughput, candidate))
        if not steps:
            return stage
        # The first of equals: the order of the application, and then the smaller placement.
        gain, throughput, candidate = max(steps, key=lambda step: step[0])
        if gain < 0 or (gain == 0 and stage):
            return stage
        stage, best = candidate, throughput


def grown(
    problem: Problem,
    progress: Progress,
    stage: Sequence[Placement],
    kept: Sequence[Placement] = (),
) -> Iterator[tuple[Placement, ...]]:
    """Yield each stage with a model more, or with more devices for one that is not kept."""
    placed = {one.model: one for one in stage}
    fixed = {one.model for one in kept}
    free = room_for(problem.devices, stage)
    tasks = problem.open_tasks(progress)
    for model in problem.simulator.unfinished(progress):
        if model in fixed or not problem.ready(model, placed, tasks):
            continue
        now = placed.get(model)
        beside = () if now else problem.beside(model, placed, tasks)
        for choice in problem.choices[model]:
            more = choice.devices - (now.devices if now else 0)
            if not 0 < more <= free:
                continue
            changed = tuple(choice if one == now else one for one in stage)
            longer = changed if now else (*stage, choice, *beside)
            # A model that leaves shared devices takes more than it had there.
            if room_for(problem.devices, longer) >= 0:
                yield longer


def throughput_of(times: StageTimes) -> float:
    """Return the FLOPs per second of a stage; 0 for one that does nothing."""
    return times.flops / times.seconds if times.seconds else 0.0


def _throughput(problem: Problem, stage: Sequence[Placement], progress: Progress) -> float:
    return throughput_of(problem.simulator.run(stage, progress)) if stage else 0.0


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
