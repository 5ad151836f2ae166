"""The file of measured engines, and the seconds of loading that later runs have seen."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from caesura.intercept.kv.costs import CostModel
from caesura.planning.costs.shapes import model_directory
from caesura.scheduler.errors import UsageError
from caesura.scheduler.paths import calibration_directory

FORMAT = 1


class CostsError(UsageError, ValueError):
    """The costs of a model are unknown, or their file is broken; the message says how to fix it."""


class MeasuredSleep(BaseModel):
    """How long an engine takes to fall asleep at a level of vLLM's sleep mode, and to wake up."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: int = Field(ge=0, le=2)
    sleep_seconds: float = Field(ge=0)
    wake_seconds: float = Field(ge=0)


class MeasuredEngine(BaseModel):
    """A model's engine at one tensor-parallel size, as it was measured on one kind of device.

    `steps` are the step times of an engine that is asked over HTTP. The KV cache has `kv_tokens` of
    `kv_bytes` on each device. `load_seconds` pass from the start of an engine to its first answer,
    and `stop_seconds` until its devices are free. `weight_bytes` are those of one device.
    `kv_arguments` are the model's arguments that sized the KV cache. `sleeps` are there if the
    device has a sleep mode and it was measured.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    device: str
    tensor_parallel: int = Field(default=1, ge=1)
    date: str = ""
    steps: CostModel
    step_error: float = 0.0
    kv_tokens: int = Field(ge=1)
    kv_bytes: int = Field(ge=1)
    weight_bytes: float = Field(ge=0)
    block_tokens: int = Field(default=16, ge=1)
    load_seconds: float = Field(ge=0)
    stop_seconds: float = Field(default=0.0, ge=0)
    kv_arguments: tuple[str, ...] = ()
    sleeps: tuple[MeasuredSleep, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what an engine is known by: model, device, tensor-parallel size."""
        return self.model, self.device, self.tensor_parallel

    def sleep_at(self, level: int | None) -> MeasuredSleep | None:
        """Return the times of a level of sleep; None if they were not measured."""
        return next((each for each in self.sleeps if each.level == level), None)


class MeasuredCosts(BaseModel):
    """The measured engines of a machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = Field(default=FORMAT, ge=FORMAT, le=FORMAT)
    engines: tuple[MeasuredEngine, ...] = ()

    def find(self, model: str, device: str, tensor_parallel: int) -> MeasuredEngine | None:
        """Return the measurement of an engine; None without one."""
        wanted = (model, device, tensor_parallel)
        return next((each for each in self.engines if each.key == wanted), None)

    def updated(self, engines: Sequence[MeasuredEngine]) -> "MeasuredCosts":
        """Return the measurements with these in place of older ones of the same engines."""
        found = {each.key: each for each in (*self.engines, *engines)}
        return MeasuredCosts(engines=tuple(found.values()))

    def save(self, path: Path) -> None:
        """Write the file; a reader finds the old file or the new one. Raises `OSError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(self.model_dump_json(indent=1) + "\n")
        part.replace(path)


def costs_path() -> Path:
    """Return the default file of measured engines."""
    return calibration_directory() / "engines.json"


def read_costs(path: Path) -> MeasuredCosts:
    """Return the measured engines of a file; raises `CostsError` for one that is broken."""
    try:
        return MeasuredCosts.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CostsError(
            f"no measured engines in {path} ({error.strerror}): make the file with"
            " `caesura measure`"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise CostsError(
            f"{path} holds no measured engines ({place}: {first['msg']}): measure again with"
            " `caesura measure`"
        ) from error


def model_name(path: str) -> str:
    """Return the name of a model in the file: an absolute path of a directory, or a name."""
    return str(model_directory(path) or path)


Events = Sequence[Mapping[str, Any]]
Engine = tuple[str, int]
"""A model's name in its application, and the devices of an engine."""


@dataclass(slots=True)
class Seen:
    """What runs have seen of one engine: the seconds of each loading and of each stopping."""

    loading: list[float] = field(default_factory=list)
    stopping: list[float] = field(default_factory=list)


def seen_in(runs: Iterable[Events]) -> dict[Engine, Seen]:
    """Return what the events of runs say of their engines.

    A loading on devices on which another engine loaded meanwhile does not count: a plan adds the
    times of engines that share devices.
    """
    found: dict[Engine, Seen] = defaultdict(Seen)
    for events in runs:
        loading: dict[str, Mapping[str, Any]] = {}
        shared: set[str] = set()
        for event in events:
            replica = event.get("replica", "")
            match event.get("event"):
                case "loading":
                    beside = [name for name, one in loading.items() if _meet(one, event)]
                    shared.update([replica, *beside] if beside else [])
                    loading[replica] = event
                case "loaded":
                    if loading.pop(replica, None) is not None and replica not in shared:
                        found[_engine(event)].loading.append(float(event["seconds"]))
                    shared.discard(replica)
                case "evicted" if "seconds" in event:
                    loading.pop(replica, None)
                    found[_engine(event)].stopping.append(float(event["seconds"]))
                case "started":
                    loading, shared = {}, set()
                case _:
                    pass
    return dict(found)


def corrected(measured: MeasuredEngine, seen: Seen) -> MeasuredEngine:
    """Return a measurement with the medians of what runs have seen, as far as they have."""
    changed = {}
    if seen.loading:
        changed["load_seconds"] = round(median(seen.loading), 3)
    if seen.stopping:
        changed["stop_seconds"] = round(median(seen.stopping), 3)
    return measured.model_copy(update=changed)


def _engine(event: Mapping[str, Any]) -> Engine:
    return str(event["model"]), len(event["devices"])


def _meet(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(set(one["devices"]) & set(other["devices"]))
