"""An application's requests as arrays for one draw of lengths, and what became of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from caesura.planning.application.requests import Request
from caesura.planning.costs.engine import Flops
from caesura.planning.costs.lengths import prompt_of
from caesura.planning.plan import Placement

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Work:
    """The n requests of an application by number: tokens, models, and who needs whom.

    `model_of` (n,) are places in `models`. `prompts` (n,) hold the outputs that a request needs,
    and `outputs` (n,) are its output tokens. `sources` and `targets` (m,) are the needs: the target
    waits for the source. Raises `ValueError` for a request without a length.
    """

    def __init__(
        self, models: Sequence[str], requests: Sequence[Request], lengths: Mapping[str, int]
    ) -> None:
        missing = [request.key for request in requests if request.key not in lengths]
        if missing:
            raise ValueError(f"request {missing[0]} has no output length")
        self.models = tuple(models)
        self.keys = tuple(request.key for request in requests)
        self.number = {key: number for number, key in enumerate(self.keys)}
        place = {model: number for number, model in enumerate(models)}
        self.model_of: Indices = np.array([place[request.model] for request in requests], np.int64)
        self.prompts: Indices = np.array([prompt_of(each, lengths) for each in requests], np.int64)
        self.outputs: Indices = np.array([lengths[key] for key in self.keys], np.int64)
        pairs = [
            (self.number[need], self.number[request.key])
            for request in requests
            for need in request.needs
        ]
        edges = np.array(pairs, np.int64).reshape(-1, 2)
        self.sources, self.targets = edges[:, 0], edges[:, 1]
        self.prompt_list, self.output_list = self.prompts.tolist(), self.outputs.tolist()
        self._by_model = [np.flatnonzero(self.model_of == each) for each in range(len(models))]

    def __len__(self) -> int:
        return len(self.keys)

    def of(self, model: str) -> Indices:
        """Return the numbers of a model's requests."""
        return self._by_model[self.models.index(model)]


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated component of k requests, whose seconds count from its first model's loading.

    `first` and `end` (k,) are the seconds of the first token and of the end, infinite for requests
    that never run. `had` (k,) are the tokens that they had decoded before.
    """

    numbers: Indices
    had: Array
    first: Array
    end: Array

    def decoded(self, work: Work, at: float) -> Array:
        """Return the tokens (k,) decoded at the second `at`: a request decodes evenly."""
        outputs, had = work.outputs[self.numbers], np.maximum(1.0, self.had)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.clip((at - self.first) / (self.end - self.first), 0.0, 1.0)
            now = np.floor(had + (outputs - had) * np.nan_to_num(share))
        now = np.where(self.end <= at, outputs, np.minimum(now, outputs - 1))
        return np.where(self.first <= at, now, self.had)

    def flops(self, work: Work, at: float, of: Mapping[int, Flops]) -> float:
        """Return the FLOPs computed by the second `at`; `of` has those of models by place.

        Models without theirs do not count.
        """
        changed = np.flatnonzero(self.first <= at)
        now, had = self.decoded(work, at)[changed], self.had[changed]
        numbers = self.numbers[changed]
        models, prompts = work.model_of[numbers], work.prompts[numbers].astype(np.float64)
        total = 0.0
        for place in set(np.unique(models).tolist()) & of.keys():
            ours, flops = models == place, of[place]
            done = flops.of(prompts[ours], now[ours]) - flops.of(prompts[ours], had[ours])
            total += float(done.sum())
        return total


@dataclass(frozen=True, slots=True)
class Placed:
    """A run of `placements` that began `base` seconds after its stage; before it if negative."""

    run: Run
    base: float
    placements: tuple[Placement, ...] = ()

    def flops(self, work: Work, end: float, of: Mapping[int, Flops]) -> float:
        """Return the FLOPs computed in the first `end` seconds of the stage."""
        computed = self.run.flops(work, end - self.base, of)
        return computed - self.run.flops(work, -self.base, of) if self.base < 0 else computed


class Finished(Mapping[str, float]):
    """The seconds at which requests finished, by key, computed when they are asked for.

    `before` are the times before a stage that began at the second `began` and ended `end` seconds
    later, with these `parts`. `loading` are the seconds behind its end at which the replicas of its
    models are loaded, which is 0 for most.
    """

    def __init__(
        self,
        work: Work,
        before: Array,
        parts: Sequence[Placed],
        began: float,
        end: float,
        loading: Mapping[str, tuple[float, ...]],
    ) -> None:
        self.work = work
        self.loading = loading
        self._before, self.parts = before, parts
        self._began, self.end = began, end

    @cached_property
    def at(self) -> Array:
        """Return the seconds (n,), infinite for unfinished requests."""
        at = self._before.copy()
        for part in self.parts:
            left = ~np.isfinite(self._before[part.run.numbers])
            end = part.run.end[left] + part.base
            at[part.run.numbers[left]] = np.where(end <= self.end, self._began + end, np.inf)
        return at

    @cached_property
    def decoded(self) -> Array:
        """Return the tokens (n,) that unfinished requests of the stage's models have decoded."""
        decoded = np.zeros(len(self.work))
        for part in self.parts:
            numbers = part.run.numbers
            now = part.run.decoded(self.work, self.end - part.base)
            decoded[numbers] = np.where(now < self.work.outputs[numbers], now, 0.0)
        return decoded

    def __getitem__(self, key: str) -> float:
        at = self.at[self.work.number[key]]
        if at == np.inf:
            raise KeyError(key)
        return float(at)

    def __contains__(self, key: object) -> bool:
        number = self.work.number.get(key) if isinstance(key, str) else None
        return number is not None and bool(self.at[number] != np.inf)

    def __iter__(self) -> Iterator[str]:
        keys = self.work.keys
        return (keys[number] for number in np.flatnonzero(np.isfinite(self.at)))

    def __len__(self) -> int:
        return int(np.isfinite(self.at).sum())


def finish_times(work: Work, finished: Mapping[str, float]) -> Array:
    """Return the seconds (n,) at which requests finished; infinite for unfinished ones."""
    if isinstance(finished, Finished) and finished.work is work:
        return finished.at
    at = np.full(len(work), np.inf)
    for key, second in finished.items():
        number = work.number.get(key)
        if number is not None:
            at[number] = second
    return at
