"""A plan carried out in simulation, as a run carries it out: with the models' own order.

Models may finish in another order than planned (SamuLLM, section 4.3): `next_turn` says what runs
then, for a run as for a simulation.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import takewhile

from caesura.planning.plan import Placement, Plan, Stage
from caesura.planning.search.problem import PlanError
from caesura.planning.stage_times import Progress, StageSimulator


@dataclass(frozen=True, slots=True)
class Turn:
    """What runs now: the number of the plan's stage that was reached (from 0), and placements."""

    stage: int
    placements: tuple[Placement, ...]


def first_turn(plan: Plan, unfinished: Collection[str]) -> Turn:
    """Return the turn at the start of a plan, or of a run that continues one."""
    return next_turn(plan, Turn(-1, ()), unfinished, ())


def next_turn(
    plan: Plan, turn: Turn, unfinished: Collection[str], finished: Collection[str]
) -> Turn:
    """Return what runs after the models `finished` have ended during `turn`.

    The stage is left when one of its models has finished, and when none could run any more (no
    model in `finished`); but not before all of its models were placed. Stages that were to end with
    models that have finished already are passed over. Then (model, placement)
    pairs that the next stage shares stay, as do those that no later stage has; those of the next
    stage follow, then other running ones if devices are left. Devices that finished models leave
    in a stage are given to the pairs of later stages. Pure, so a run and a simulation agree.
    """
    running = [one for one in turn.placements if one.model in unfinished]
    number = turn.stage
    if number < 0 or _is_over(plan.stages[number], running, unfinished, finished):
        number = _next_stage(plan, number, unfinished)
    stage = plan.stages[number]
    later = {one.model for ahead in plan.stages[number:] for one in ahead.placements}
    stays = [one for one in running if one in stage.placements or one.model not in later]
    chosen = _fit(plan.devices, stays, stage.placements, unfinished)
    chosen = _fit(plan.devices, chosen, running, unfinished)
    if not _waiting(stage, chosen, unfinished):
        ahead = [one for after in plan.stages[number + 1 :] for one in after.placements]
        chosen = _fit(stage.devices, chosen, ahead, unfinished)
    if not chosen:  # Models that the plan has finished, but the run has not.
        every = [one for before in reversed(plan.stages) for one in before.placements]
        chosen = _fit(plan.devices, chosen, every, unfinished)
    return Turn(number, tuple(chosen))


def _is_over(
    stage: Stage,
    running: Sequence[Placement],
    unfinished: Collection[str],
    finished: Collection[str],
) -> bool:
    """Return whether the stage was placed as a whole, and then ended."""
    ended = not finished or any(one.model in finished for one in stage.placements)
    return (ended or _passed(stage, unfinished)) and not _waiting(stage, running, unfinished)


def _passed(stage: Stage, unfinished: Collection[str]) -> bool:
    """Return whether all models with whose end the stage was to end have finished."""
    return bool(stage.finishes) and not any(model in unfinished for model in stage.finishes)


def _waiting(
    stage: Stage, placed: Sequence[Placement], unfinished: Collection[str]
) -> list[Placement]:
    """Return the stage's placements of unfinished models that are not placed."""
    return [one for one in stage.placements if one.model in unfinished and one not in placed]


def _next_stage(plan: Plan, number: int, unfinished: Collection[str]) -> int:
    """Return the number of the next stage that has not passed; the last one without any."""
    for after in range(number + 1, len(plan.stages)):
        stage = plan.stages[after]
        left = any(one.model in unfinished for one in stage.placements)
        if left and not _passed(stage, unfinished):
            return after
    return max(number, 0)


def _fit(
    devices: int,
    placed: Sequence[Placement],
    wanted: Sequence[Placement],
    unfinished: Collection[str],
) -> list[Placement]:
    """Return what is placed, and those wanted placements of other models that fit beside it."""
    chosen = list(placed)
    for one in wanted:
        new = one.model in unfinished and all(other.model != one.model for other in chosen)
        if new and Stage((*chosen, one)).devices <= devices:
            chosen.append(one)
    return chosen


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
