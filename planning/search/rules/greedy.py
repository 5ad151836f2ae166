"""SamuLLM's greedy search (section 4.2, Algorithm 1)."""

from collections.abc import Iterator, Sequence

from caesura.planning.plan import Placement
from caesura.planning.search.drafts import room_for
from caesura.planning.search.problem import Problem
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
