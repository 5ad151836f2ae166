"""A small exact world of plans: models with constant rates on one server each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from caesura.planning.application.application import Application, Model, Task
from caesura.planning.application.requests import Request, asked_by, with_asked
from caesura.planning.plan import Placement
from caesura.planning.search.problem import Problem
from caesura.planning.search.strategies import Memo
from caesura.planning.stage_times import Progress, StageTimes


@dataclass
class Factory:
    """A `StageSimulator` in which a request takes 1 / (rate devices^power) seconds of its model.

    A model finishes its requests one after the other, each as soon as those that it needs have
    finished. `loading` are the seconds to load a model, and a request computes one FLOP. At most
    `sharing` models share devices; each then has its part of their rate.
    """

    requests: Sequence[Request]
    rates: Mapping[str, float]
    power: float = 0.7
    loading: float = 0.0
    memory: Mapping[str, int] = field(default_factory=dict)
    sharing: int = 0
    simulated: int = 0

    def valid(self, placement: Placement) -> bool:
        return placement.tensor_parallel >= self.memory.get(placement.model, 1)

    def share(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        if len(placements) > self.sharing:
            return ()
        name = "+".join(sorted(one.model for one in placements))
        return tuple(replace(one, kv_bytes=1, shares=name) for one in placements)

    def unfinished(self, progress: Progress) -> Sequence[str]:
        left = {one.model for one in self.requests if one.key not in progress.finished}
        needed = with_asked(left, asked_by(self.requests))
        asked = (name for one in self.requests for name in one.asks)
        order = dict.fromkeys([*(one.model for one in self.requests), *asked])
        return [model for model in order if model in needed]

    def run(
        self, placements: Sequence[Placement], progress: Progress, *, to_the_end: bool = False
    ) -> StageTimes:
        self.simulated += 1
        placed = {one.model: one for one in placements}
        assert len(placed) == len(placements), "a model is placed twice"
        free = {
            model: progress.seconds + self.loading * (one not in progress.loaded)
            for model, one in placed.items()
        }
        ends: dict[str, float] = {}
        for request in self.requests:
            known = {**progress.finished, **ends}
            if request.key in known or request.model not in placed:
                continue
            if any(need not in known for need in request.needs):
                continue
            start = max([free[request.model], *(known[need] for need in request.needs)])
            one = placed[request.model]
            together = [each for each in placements if one.shares and each.shares == one.shares]
            rate = self.rates[request.model] * one.devices**self.power / max(1, len(together))
            ends[request.key] = free[request.model] = start + 1 / rate
        return self._stage(placements, progress, ends, to_the_end)

    def _stage(
        self,
        placements: Sequence[Placement],
        progress: Progress,
        ends: Mapping[str, float],
        to_the_end: bool,
    ) -> StageTimes:
        model_ends: dict[str, float] = {}
        for model in {one.model for one in placements}:
            left = [
                one.key
                for one in self.requests
                if one.model == model and one.key not in progress.finished
            ]
            if left and all(key in ends for key in left):
                model_ends[model] = max(ends[key] for key in left)
        last = max(ends.values(), default=progress.seconds)
        end = last if to_the_end else min(model_ends.values(), default=last)
        done = {key: second for key, second in ends.items() if second <= end}
        after = Progress(end, {**progress.finished, **done}, tuple(placements))
        reached = {model: second for model, second in model_ends.items() if second <= end}
        loading = {
            one.model: min(self.loading, end - progress.seconds)
            for one in placements
            if one not in progress.loaded
        }
        return StageTimes(after, end - progress.seconds, reached, float(len(done)), loading)


def problem(
    models: Mapping[str, int],
    devices: int = 4,
    needs: Mapping[str, str] | None = None,
    degrees: Mapping[str, tuple[int, ...]] | None = None,
    rates: Mapping[str, float] | None = None,
    **world: Any,
) -> Problem:
    """Return the problem of such an application in a factory with rates of 1 by default."""
    made, requests = application(models, needs, degrees)
    factory = Factory(requests, dict.fromkeys(models, 1.0) | dict(rates or {}), **world)
    return Problem(made, requests, devices, Memo(factory))


def application(
    models: Mapping[str, int],
    needs: Mapping[str, str] | None = None,
    degrees: Mapping[str, tuple[int, ...]] | None = None,
    asks: Mapping[str, str] | None = None,
) -> tuple[Application, tuple[Request, ...]]:
    """Return an application of one task per model, with these numbers of requests.

    `needs` names the model whose output of the same row a model's requests need, and `asks` the one
    that they may ask. A model with 0 requests has no task.
    """
    asks = asks or {}
    needs = needs or {}
    degrees = degrees or {}
    tasks = []
    requests: list[Request] = []
    for model, count in models.items():
        if not count:
            continue
        need = needs.get(model)
        asked = (asks[model],) if model in asks else ()
        tasks.append(Task(model, model, "{{ x }}", needs=(need,) if need else (), asks=asked))
        for row in range(count):
            inputs = (f"{need}/{row}",) if need else ()
            requests.append(Request(f"{model}/{row}", model, model, 10, 10, inputs, asked))
    made = [Model(name, name, tensor_parallel=degrees.get(name, (1,))) for name in models]
    return Application("factory", tuple(made), tuple(tasks)), tuple(requests)
