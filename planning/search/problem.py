"""The problem of a search, and the drafts of its plans: stages until every model has finished."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from caesura.planning.application.application import Application, Task
from caesura.planning.application.requests import Request
from caesura.planning.plan import Makespan, Placement, Plan, Stage
from caesura.planning.stage_times import Progress, StageSimulator
from caesura.scheduler.errors import UsageError


class PlanError(UsageError, ValueError):
    """No plan can be made: a model fits no placement, or tasks wait for each other forever."""


class Problem:
    """An application's requests, the devices, and the simulator for one draw of output lengths.

    Raises `PlanError` for a number of devices below 1 and for a model that fits no placement.
    """

    def __init__(
        self,
        application: Application,
        requests: Sequence[Request],
        devices: int,
        simulator: StageSimulator,
    ) -> None:
        if devices < 1:
            raise PlanError(f"a plan needs at least 1 device, got {devices}")
        self.application = application
        self.requests = tuple(requests)
        self.devices = devices
        self.simulator = simulator
        self._open: dict[Progress, frozenset[str]] = {}
        self._inputs: dict[tuple[str, Progress], Progress] = {}
        needed = {request.model for request in requests}
        needed |= {asked for request in requests for asked in request.asks}
        self.models = tuple(one.name for one in application.models if one.name in needed)
        self.choices = {name: self._placements(name) for name in self.models}
        for name, found in self.choices.items():
            if not found:
                raise PlanError(
                    f"model {name!r} fits none of its placements on {devices} device"
                    f"{'s' * (devices > 1)}; give more devices, a larger tensor_parallel or a"
                    " smaller max_tokens"
                )

    def _placements(self, name: str) -> tuple[Placement, ...]:
        """Return the valid placements of a model that has devices of its own, smallest first."""
        model = self.application.model(name)
        found = []
        for degree in sorted(set(model.tensor_parallel)):
            most = self.devices // degree
            most = min(most, model.max_replicas) if model.max_replicas else most
            found += [Placement(name, replicas, degree) for replicas in range(1, most + 1)]
        valid = {one.tensor_parallel: self.simulator.valid(one) for one in reversed(found)}
        return tuple(
            sorted(
                (one for one in found if valid[one.tensor_parallel]),
                key=lambda one: (one.devices, one.tensor_parallel),
            )
        )

    @cached_property
    def _tasks(self) -> Mapping[str, Task]:
        return {task.name: task for task in self.application.tasks}

    @cached_property
    def _requests_of(self) -> Mapping[str, tuple[str, ...]]:
        """Return the keys of the requests by task."""
        found: dict[str, list[str]] = {task.name: [] for task in self.application.tasks}
        for request in self.requests:
            found[request.task].append(request.key)
        return {name: tuple(keys) for name, keys in found.items()}

    @cached_property
    def _asked(self) -> Mapping[str, frozenset[str]]:
        """Return the models that a task's requests may call as tools, by task."""
        found: dict[str, set[str]] = {task.name: set() for task in self.application.tasks}
        for request in self.requests:
            found[request.task].update(request.asks)
        return {name: frozenset(models) for name, models in found.items()}

    def open_tasks(self, progress: Progress) -> frozenset[str]:
        """Return the tasks with unfinished requests."""
        tasks = self._open.get(progress)
        if tasks is None:
            finished = progress.finished
            tasks = self._open[progress] = frozenset(
                name
                for name, keys in self._requests_of.items()
                if any(key not in finished for key in reversed(keys))
            )
        return tasks

    def ready(self, model: str, placed: Collection[str], open_tasks: Collection[str]) -> bool:
        """Return whether the model has work in a stage with the models `placed`.

        It has if one of its open tasks needs only tasks that are finished, or that can run in the
        stage as well (Algorithm 1, line 5), with the models that it asks `beside` it. A model that
        open tasks ask has work where their own model is placed.
        """
        there = {*placed, model, *self.companions(model, open_tasks)}
        return any(
            (model in self._asked[task] and self._tasks[task].model in placed)
            or (self._tasks[task].model == model and self._runs(task, there, open_tasks))
            for task in open_tasks
        )

    def beside(
        self, model: str, placed: Collection[str], open_tasks: Collection[str]
    ) -> tuple[Placement, ...]:
        """Return the smallest placements of models that this one asks and that are not placed."""
        missing = self.companions(model, open_tasks) - {model, *placed}
        return tuple(self.choices[name][0] for name in self.models if name in missing)

    def runs_alone(self, model: str, open_tasks: Collection[str]) -> bool:
        """Return whether one of the model's open tasks can finish with no other model placed."""
        own = (task for task in open_tasks if self._tasks[task].model == model)
        return any(self._runs(task, {model}, open_tasks) for task in own)

    def _runs(self, task: str, placed: Collection[str], open_tasks: Collection[str]) -> bool:
        """Return whether a task can finish while these models are placed."""
        if self._tasks[task].model not in placed or not self._asked[task] <= set(placed):
            return False
        return all(
            need not in open_tasks or self._runs(need, placed, open_tasks)
            for need in self._tasks[task].needs
        )

    def companions(self, model: str, open_tasks: Collection[str]) -> frozenset[str]:
        """Return the models that must run beside this one, since its requests ask them."""
        return frozenset().union(
            *(self._asked[task] for task in open_tasks if self._tasks[task].model == model)
        )

    def alone(self, placement: Placement, progress: Progress) -> float:
        """Return the seconds until a placed model has finished if all that it needs is there."""
        inputs = self._with_inputs(placement.model, progress)
        return self.simulator.run((placement,), inputs, to_the_end=True).seconds

    def _with_inputs(self, model: str, progress: Progress) -> Progress:
        """Return the progress as if the tasks that the model's tasks need had finished."""
        tasks = self.open_tasks(progress)
        needed = self._needed({one for one in tasks if self._tasks[one].model == model}) & tasks
        if not any(self._tasks[one].model != model for one in needed):
            return progress
        key = (model, progress)
        if key not in self._inputs:
            finished = dict(progress.finished)
            for task in needed:
                if self._tasks[task].model != model:
                    finished |= dict.fromkeys(self._requests_of[task], progress.seconds)
            self._inputs[key] = replace(progress, finished=finished)
        return self._inputs[key]

    def _needed(self, tasks: Collection[str]) -> set[str]:
        """Return the tasks that these need, and those that these need in turn."""
        found: set[str] = set()
        new = set(tasks)
        while new:
            new = {need for task in new for need in self._tasks[task].needs} - found
            found |= new
        return found


@dataclass(frozen=True, slots=True)
class Draft:
    """The stages chosen so far, and the progress at the end of the last one."""

    progress: Progress
    stages: tuple[Stage, ...] = ()

    def plan(self, strategy: str, devices: int) -> Plan:
        """Return the plan of a finished draft, with the makespan of this one draw of lengths."""
        seconds = self.progress.seconds
        return Plan(strategy, devices, self.stages, Makespan(seconds, seconds, seconds))


class Chooser(Protocol):
    """A rule that chooses the models of the next stage."""

    def __call__(
        self, problem: Problem, progress: Progress, kept: Sequence[Placement]
    ) -> tuple[Placement, ...]:
        """Return the placements of the stage that begins with `progress`.

        Those in `kept` are among them: their models run already and are not stopped.
        """
        ...


def lengthen(problem: Problem, draft: Draft, placements: Sequence[Placement]) -> Draft:
    """Return the draft with one stage more. Raises `PlanError` if the stage can do nothing."""
    before = problem.simulator.unfinished(draft.progress)
    _demand_asked(problem, draft.progress, placements)
    times = problem.simulator.run(placements, draft.progress)
    after = set(problem.simulator.unfinished(times.after))
    if len(times.after.finished) == len(draft.progress.finished):
        names = ", ".join(one.model for one in placements) or "no models"
        raise PlanError(
            f"a stage of {names} finishes no request, and {', '.join(before)} are unfinished;"
            " check the tasks' needs, and give more devices if their models must run together"
        )
    finishes = tuple(model for model in before if model not in after)
    stage = Stage(tuple(placements), times.seconds, finishes)
    return Draft(times.after, (*draft.stages, stage))


def _demand_asked(problem: Problem, progress: Progress, placements: Sequence[Placement]) -> None:
    """Raise `PlanError` for a stage without a model that one of its models asks as a tool."""
    placed = {one.model for one in placements}
    tasks = problem.open_tasks(progress)
    for model in placed:
        for missing in sorted(problem.companions(model, tasks) - placed):
            raise PlanError(
                f"a stage of {', '.join(sorted(placed))} lacks {missing}, which {model} asks; give"
                " more devices"
            )


def complete(problem: Problem, chooser: Chooser, draft: Draft, *, preempt: bool = True) -> Draft:
    """Return the draft with the stages that the rule chooses until every model has finished.

    Without `preempt` a model keeps its placement from its first stage to its end (section 5.5).
    """
    while unfinished := problem.simulator.unfinished(draft.progress):
        last = draft.stages[-1].placements if draft.stages and not preempt else ()
        kept = tuple(one for one in last if one.model in unfinished)
        draft = lengthen(problem, draft, chooser(problem, draft.progress, kept))
    return draft


def room_for(devices: int, placements: Sequence[Placement]) -> int:
    """Return the devices that the placements leave."""
    return devices - Stage(tuple(placements)).devices
