"""A plan: stages of models with their parallelism, on a number of devices (SamuLLM, section 3)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Placement:
    """A model and its execution plan P = (dp, tp) (SamuLLM, equation 3).

    `replicas` is dp, the engines of the model, and `tensor_parallel` is tp, the devices of each.
    `kv_bytes` is the KV cache on each device; 0: all memory that the weights leave. Models that
    share devices each have a `kv_bytes`, and the same `shares`, a name for the devices; models with
    an empty one have devices of their own.
    """

    model: str
    replicas: int = 1
    tensor_parallel: int = 1
    kv_bytes: int = 0
    shares: str = ""

    @property
    def devices(self) -> int:
        """Return the number of devices that it takes."""
        return self.replicas * self.tensor_parallel


@dataclass(frozen=True, slots=True)
class Stage:
    """Models that run together (SamuLLM, equation 4), until the first of them has finished.

    `seconds` is the stage's expected time, loading included. `finishes` are the models that are
    expected to have finished at its end.
    """

    placements: tuple[Placement, ...]
    seconds: float = 0.0
    finishes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """Return the number of devices that its placements take; shared ones count once."""
        own = sum(one.devices for one in self.placements if not one.shares)
        shared: dict[str, int] = {}
        for one in self.placements:
            if one.shares:
                shared[one.shares] = max(shared.get(one.shares, 0), one.devices)
        return own + sum(shared.values())


@dataclass(frozen=True, slots=True)
class Makespan:
    """The seconds from the start to the last output, over several draws of output lengths."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A complete execution plan (SamuLLM, section 3): stages in their order.

    `strategy` names the search that found it, and `devices` is the number that it may use.
    """

    strategy: str
    devices: int
    stages: tuple[Stage, ...]
    makespan: Makespan
