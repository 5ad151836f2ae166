"""A plan carried out in simulation, as a run carries it out: with the models' own order."""

from dataclasses import dataclass
from itertools import takewhile

from caesura.planning.plan import Plan, Stage
from caesura.planning.search.adjust import Turn, first_turn, next_turn
from caesura.planning.search.problem import PlanError
from caesura.planning.stage_times import Progress, StageSimulator


@dataclass(frozen=True, slots=True)
class Followed:
    """The stages that a plan became with one draw of output lengths, and their total seconds.

    `loading_seconds` are those of devices that load, and `idle_seconds` those of devices without a
    model. `tail_seconds` are those of the stages at the end that run only one model.
    """

    stages: tuple[Stage, ...]
    seconds: float
    loading_seconds: float
    idle_seconds: float

    @property
    def tail_seconds(self) -> float:
        """Return the seconds after all models but the last have finished."""
        last = takewhile(lambda stage: len(stage.placements) == 1, reversed(self.stages))
        return sum(stage.seconds for stage in last)


def follow(
    plan: Plan,
    simulator: StageSimulator,
    progress: Progress | None = None,
    turn: Turn | None = None,
) -> Followed:
    """Return what becomes of the plan from `progress` on, and from `turn` if it runs already.

    Models that finish in another order than planned are handled as in a run (`next_turn`).
    Raises `PlanError` if a turn finishes no request.
    """
    progress = progress or Progress()
    begin = progress.seconds
    unfinished = simulator.unfinished(progress)
    stages: list[Stage] = []
    loading = idle = 0.0
    if unfinished:
        turn = turn or first_turn(plan, unfinished)
    while unfinished and turn:
        times = simulator.run(turn.placements, progress)
        if len(times.after.finished) == len(progress.finished):
            names = ", ".join(one.model for one in turn.placements)
            raise PlanError(f"stage {turn.stage + 1} ({names}) of the plan finishes no request")
        left = simulator.unfinished(times.after)
        finished = tuple(model for model in unfinished if model not in left)
        stage = Stage(turn.placements, times.seconds, finished)
        stages.append(stage)
        loading += sum(one.devices * times.loading.get(one.model, 0.0) for one in turn.placements)
        idle += (plan.devices - stage.devices) * times.seconds
        progress, unfinished = times.after, left
        if unfinished:
            turn = next_turn(plan, turn, unfinished, finished)
    return Followed(tuple(stages), progress.seconds - begin, loading, idle)
