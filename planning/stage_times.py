"""What a search asks of a cost model: how long a stage takes, and what is done at its end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from caesura.planning.plan import Placement


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far an application is: the second, finished requests by when, and what is loaded.

    A request that was running when its model was evicted begins again from its prompt. `evicted`
    are placements that were loaded before: their engines sleep, where engines do.

    Two are the same only if they are one object: a search keeps what it has found out about each.
    """

    seconds: float = 0.0
    finished: Mapping[str, float] = field(default_factory=dict)
    loaded: tuple[Placement, ...] = ()
    evicted: tuple[Placement, ...] = ()


def engine_like(placement: Placement) -> Placement:
    """Return a placement that is the same for all whose engines can be one another's."""
    return replace(placement, replicas=1, shares="")


def evicted_after(progress: Progress, placements: Sequence[Placement]) -> tuple[Placement, ...]:
    """Return what is evicted once `placements` are loaded; those that come back no longer are."""
    left: dict[Placement, int] = {}
    for one in (*progress.loaded, *progress.evicted):
        left[engine_like(one)] = left.get(engine_like(one), 0) + one.replicas
    for one in placements:
        left[engine_like(one)] = left.get(engine_like(one), 0) - one.replicas
    return tuple(replace(one, replicas=count) for one, count in left.items() if count > 0)


@dataclass(frozen=True, slots=True)
class StageTimes:
    """A simulated stage.

    `after` is the progress at the end. `model_ends` are the seconds at which models finished, of
    those that did. `flops` are those computed in the stage, so `flops / seconds` is its throughput
    (SamuLLM, section 3: T_E = FLOPs_E / t_E). `loading` are the seconds for which each model that
    was loaded did nothing else.
    """

    after: Progress
    seconds: float
    model_ends: Mapping[str, float]
    flops: float
    loading: Mapping[str, float] = field(default_factory=dict)


class StageSimulator(Protocol):
    """The times of stages, for one draw of the output lengths of an application's requests."""

    def valid(self, placement: Placement) -> bool:
        """Return whether devices hold the weights and the KV cache of one longest request."""
        ...

    def share(self, placements: Sequence[Placement]) -> tuple[Placement, ...]:
        """Return the placements on devices that they share, each with its part of the KV cache.

        Empty if the devices do not hold the weights and one longest request of each.
        """
        ...

    def unfinished(self, progress: Progress) -> Sequence[str]:
        """Return the models that have requests left, in the order of the application.

        Models that such models may call as tools are among them.
        """
        ...

    def run(
        self, placements: Sequence[Placement], progress: Progress, *, to_the_end: bool = False
    ) -> StageTimes:
        """Return the times of a stage that begins with `progress`.

        Models that are not loaded already are loaded first, and those that are no longer placed are
        evicted. The stage ends when the first model has finished, or with `to_the_end` when all
        have. Requests wait for those that they need, which may run in the same stage. A stage also
        ends when none of its models has a request that can run: those left need models that are not
        placed. Its seconds are 0, and its progress is the given one, if none could run at all.
        """
        ...
