"""What the engines of an application's models cost: the cost model of a planner."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from caesura.planning.application.application import Application, Model
from caesura.planning.application.requests import Request, Requests
from caesura.planning.costs.cluster import Simulate, run_component
from caesura.planning.costs.devices import Kind, this_machine
from caesura.planning.costs.engine import EngineCosts
from caesura.planning.costs.lengths import (
    Lengths,
    Limits,
    Predicted,
    draw_lengths,
    make_lengths,
)
from caesura.planning.costs.measured import (
    CostsError,
    MeasuredCosts,
    costs_path,
    read_costs,
)
from caesura.planning.costs.sources import engine_of
from caesura.planning.costs.stages import FastStages
from caesura.planning.plan import Placement

QUESTION_TOKENS = 128
"""The assumed prompt of a question of another model."""
ANSWER_TOKENS = 512
"""The limit of an answer to it, as of the tool that asks."""
LEVELS = 64
"""Levels of a distribution of lengths at which its mean is taken."""


class ApplicationCosts:
    """The costs of an application's models on one kind of device.

    An engine's costs are those of the model's `machines` if it names one for the tensor-parallel
    size, else those measured on this kind of device, else those of a roofline of its shape with
    assumed rates; `assumed` names the models of the last kind.
    """

    def __init__(
        self,
        models: Sequence[Model],
        requests: Sequence[Request],
        lengths: Mapping[str, Lengths],
        *,
        measured: MeasuredCosts | None = None,
        kind: Kind | None = None,
        sleep_level: int | None = None,
    ) -> None:
        """`lengths` are by model. With a `sleep_level` evicted engines sleep, where measured.

        Raises `CostsError` for a model whose costs are unknown.
        """
        self._models = {model.name: model for model in models}
        self._requests = tuple(requests)
        self._lengths = dict(lengths)
        self._measured = measured or MeasuredCosts()
        self._kind = kind or this_machine()
        self._sleep_level = sleep_level
        self._engines: dict[tuple[str, int], EngineCosts | None] = {}
        self._assumed: set[str] = set()
        for model in models:
            for degree in model.tensor_parallel:
                self.engine(model.name, degree)
            if all(self.engine(model.name, degree) is None for degree in model.tensor_parallel):
                raise CostsError(
                    f"model {model.name!r} fits on no device: its weights need more memory than"
                    f" {self._kind.name} has, at each of its tensor_parallel sizes"
                    f" {list(model.tensor_parallel)}"
                )

    @property
    def assumed(self) -> tuple[str, ...]:
        """Return the models whose costs are not measured, in the order of the application."""
        return tuple(name for name in self._models if name in self._assumed)

    def engine(self, model: str, tensor_parallel: int) -> EngineCosts | None:
        """Return the costs of an engine; None if its weights do not fit on so many devices."""
        key = (model, tensor_parallel)
        if key not in self._engines:
            found = engine_of(
                self._models[model],
                tensor_parallel,
                self._measured,
                self._kind,
                self._sleep_level,
            )
            self._engines[key] = found.costs
            if found.assumed:
                self._assumed.add(model)
        return self._engines[key]

    def longest(self, model: str) -> int:
        """Return l_max of a model, in tokens."""
        return self._first_fitting(model).longest

    def draw(self, seed: int, draw: int = 0) -> dict[str, int]:
        """Return the output tokens of all requests by key, for one draw."""
        generator = np.random.default_rng((seed, draw))
        longest = {name: self.longest(name) for name in self._models}
        return draw_lengths(self._requests, self._lengths, longest, generator)

    def simulators(self, draws: int, seed: int) -> Sequence[FastStages]:
        """Return the times of stages, for each of some draws of the output lengths."""
        return [self.known(self.draw(seed, draw)) for draw in range(draws)]

    def known(self, lengths: Mapping[str, int], simulate: Simulate = run_component) -> FastStages:
        """Return the times of stages for known output lengths, by key."""
        return FastStages(list(self._models), self._requests, lengths, self.engine, simulate)

    def device_bytes(self, placement: Placement) -> float:
        """Return the memory that a placement takes of each of its devices."""
        return self._of(placement).held(placement)

    def load_seconds(self, placement: Placement) -> float:
        """Return the seconds until an engine of the placement answers."""
        return self._of(placement).load_seconds

    def answer_seconds(self, model: str) -> float | None:
        """Return the mean seconds of a model's answer to a question of another model.

        The question has `QUESTION_TOKENS` tokens and is answered alone, as soon as it comes. None
        if nothing is known of the lengths of answers but their limit.
        """
        lengths = self._lengths[model]
        if isinstance(lengths, Limits | Predicted):
            return None
        question = Request("question", "", model, QUESTION_TOKENS, ANSWER_TOKENS)
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        drawn = lengths.at([question] * LEVELS, levels)
        return self._first_fitting(model).alone_seconds(
            QUESTION_TOKENS, float(drawn.clip(1, ANSWER_TOKENS).mean())
        )

    def _first_fitting(self, model: str) -> EngineCosts:
        """Return the costs at the first tensor-parallel size at which the model fits."""
        degrees = self._models[model].tensor_parallel
        return next(e for d in degrees if (e := self.engine(model, d)) is not None)

    def _of(self, placement: Placement) -> EngineCosts:
        engine = self.engine(placement.model, placement.tensor_parallel)
        if engine is None:
            raise CostsError(f"{placement} does not fit on its devices")
        return engine


def make_costs(
    application: Application,
    requests: Requests,
    *,
    path: Path | None = None,
    kind: Kind | None = None,
    devices: int = 0,
    sleep_level: int | None = None,
) -> ApplicationCosts:
    """Return the costs of an application's models, with what was measured in the file `path`.

    Without a path it is the default file, if there is one. `kind` are the devices; None: `devices`
    of this machine, or as many as the application says. With a `sleep_level` engines that are
    evicted sleep, as far as the times of that were measured. Raises `CostsError`, and the errors of
    `make_lengths`.
    """
    file = path or costs_path()
    measured = read_costs(file) if path is not None or file.is_file() else MeasuredCosts()

    def text(request: Request) -> str:
        nothing = dict.fromkeys(request.needs, "")
        return "\n".join(each["content"] for each in requests.messages(request, nothing))

    lengths = {model.name: make_lengths(model.lengths, text) for model in application.models}
    used = {request.model for request in requests.all}
    used |= {asked for request in requests.all for asked in request.asks}
    models = [
        replace(model, tensor_parallel=tuple(dict.fromkeys(model.tensor_parallel)))
        for model in application.models
        if model.name in used
    ]
    kind = kind or this_machine(devices or application.devices)
    return ApplicationCosts(
        models, requests.all, lengths, measured=measured, kind=kind, sleep_level=sleep_level
    )
