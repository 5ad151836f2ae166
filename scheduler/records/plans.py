"""Records of planned runs: a plan, the stages and engines of its run, and finished requests.

`caesura plan` and `caesura run` write them. Models, stages and devices are counted from 0.
"""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from caesura.scheduler.records.parts import About, Record

Numbers = list[float]
Texts = list[str]

Model = Annotated[str, About("the model's name in the application")]
Strategy = Annotated[str, About("the search that found it")]
Mean = Annotated[float, About("expected time until the last output", "s")]
Low = Annotated[float, About("the least of it over the draws of output lengths", "s")]
High = Annotated[float, About("the most of it", "s")]


@dataclass(frozen=True, slots=True)
class PlacementRecord:
    """A model with its replicas (data parallelism) and the devices of each."""

    model: Model = ""
    replicas: Annotated[int, About("replicas of the model", "replicas")] = 1
    tensor_parallel: Annotated[int, About("devices of each replica", "devices")] = 1
    kv_bytes: Annotated[
        int, About("KV cache on each device; 0: what is left", "bytes", read_by="")
    ] = 0
    shares: Annotated[str, About("the devices that it shares with other models, by name")] = ""


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """Models that are to run together until the first of them has finished."""

    seconds: Annotated[float, About("expected time, loading included", "s")] = 0.0
    finishes: Annotated[Texts, About("the models that finish with it")] = field(
        default_factory=list
    )
    placements: Annotated[tuple[PlacementRecord, ...], About("what runs")] = ()


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """A model on a device for a part of the plan."""

    device: Annotated[int, About("the device's number")] = 0
    model: Model = ""
    state: Annotated[str, About("`loading` or `serving`")] = "serving"
    since: Annotated[float, About("seconds from the plan's beginning", "s")] = 0.0
    until: Annotated[float, About("seconds from the plan's beginning", "s")] = 0.0
    replicas: Annotated[int, About("replicas of the model", "replicas")] = 1
    tensor_parallel: Annotated[int, About("devices of each replica", "devices")] = 1


@dataclass(frozen=True, slots=True)
class OtherPlan:
    """The best plan that was not chosen."""

    strategy: Strategy = ""
    makespan: Mean = 0.0
    low: Low = 0.0
    high: High = 0.0
    reason: Annotated[str, About("why it was not chosen")] = ""


@dataclass(frozen=True, slots=True)
class PlanRecord(Record):
    """A plan of an application of several models, for what is left of it."""

    kind: ClassVar[str] = "plan"
    set_by: ClassVar[str] = "`caesura plan --trace` and `caesura run`, when a plan is made"

    at: Annotated[float, About("when its first stage begins", "s")]
    application: Annotated[str, About("the application's name")] = ""
    strategy: Strategy = ""
    devices: Annotated[int, About("devices that it may use", "devices")] = 0
    requests: Annotated[int, About("requests of the application", "requests")] = 0
    makespan: Mean = 0.0
    low: Low = 0.0
    high: High = 0.0
    why: Annotated[str, About("why a run changed to it; empty for the first plan")] = ""
    stages: Annotated[tuple[PlannedStage, ...], About("its stages in their order")] = ()
    blocks: Annotated[tuple[PlannedBlock, ...], About("which model has which device when")] = ()
    next_best: Annotated[OtherPlan | None, About("the next best plan, and why it lost")] = None


@dataclass(frozen=True, slots=True)
class StageRecord(Record):
    """A run has begun a stage of its plan, or placed other models within it."""

    kind: ClassVar[str] = "stage"
    set_by: ClassVar[str] = "`caesura run`, when models are placed"

    at: Annotated[float, About("when it began", "s")]
    stage: Annotated[int, About("the stage's number in the newest plan")] = 0
    placements: Annotated[tuple[PlacementRecord, ...], About("what runs from now on")] = ()


@dataclass(frozen=True, slots=True)
class ReplicaRecord(Record):
    """An engine of a run has changed its state."""

    kind: ClassVar[str] = "replica"
    set_by: ClassVar[str] = "`caesura run`, when an engine is loaded, drained, evicted or lost"

    at: Annotated[float, About("when it changed", "s")]
    replica: Annotated[str, About("the engine's name")]
    model: Model = ""
    devices: Annotated[Numbers, About("the numbers of its devices")] = field(default_factory=list)
    state: Annotated[
        str,
        About("`loading`, `serving`, `draining`, `evicting`, `gone`, `failed` to load, or `lost`"),
    ] = ""
    reason: Annotated[str, About("why it failed or was lost")] = ""


@dataclass(frozen=True, slots=True)
class ProgressRecord(Record):
    """The requests of a run that are done, by model: columns of equal length."""

    kind: ClassVar[str] = "progress"
    set_by: ClassVar[str] = "`caesura run`, when requests are done and when the run ends"

    at: Annotated[float, About("when so many were done", "s")]
    state: Annotated[str, About("`running`, `finished` or `stopped`")] = "running"
    model: Annotated[Texts, About("the models")] = field(default_factory=list)
    requests: Annotated[Numbers, About("requests of each model", "requests")] = field(
        default_factory=list
    )
    done: Annotated[Numbers, About("of them done", "requests")] = field(default_factory=list)
    failed: Annotated[Numbers, About("of the done ones without an output", "requests")] = field(
        default_factory=list
    )
