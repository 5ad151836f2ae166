"""A plan: stages of models with their parallelism (SamuLLM, section 3), and its JSON file."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from caesura.scheduler.errors import UsageError


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


FORMAT = 1
"""The version of the file's format."""

_ADAPTER = TypeAdapter(Plan)


class PlanFileError(UsageError, ValueError):
    """A file holds no plan that can be carried out; the message says why."""


def plan_to_json(plan: Plan, application: str, **more: Any) -> dict[str, Any]:
    """Return a plan of the named application as JSON values; `more` stands beside it."""
    return {"format": FORMAT, "application": application, "plan": asdict(plan), **more}


def plan_of(values: Any) -> Plan:
    """Return the plan of JSON values, as `asdict` makes them; raises `ValidationError`."""
    return _ADAPTER.validate_python(values)


def read_next_best(path: Path) -> tuple[Plan | None, str]:
    """Return the next best plan of a file that `read_plan` takes, and why it lost; else None."""
    values = json.loads(path.read_text("utf-8"))
    try:
        return plan_of(values.get("next_best")), str(values.get("reason", ""))
    except ValidationError:  # there was none, or the file is an older one
        return None, ""


def read_plan(path: Path, application: str, models: Mapping[str, Any]) -> Plan:
    """Return the plan in a file of `caesura plan --json`, for the named application.

    `models` are the application's by name. Raises `PlanFileError`.
    """
    try:
        values = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise PlanFileError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PlanFileError(f"{path}: is not JSON: {error}") from None
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise PlanFileError(f"{path}: is not a plan of `caesura plan --json`: make one")
    if values.get("application") != application:
        raise PlanFileError(
            f"{path}: is a plan of the application {values.get('application')!r}, not of"
            f" {application!r}: make one of this application"
        )
    try:
        plan = plan_of(values.get("plan"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise PlanFileError(f"{path}: plan.{place}: {first['msg']}") from None
    for stage in plan.stages:
        for one in stage.placements:
            if one.model not in models:
                raise PlanFileError(
                    f"{path}: places the model {one.model!r}, which the application does not have:"
                    " make a new plan"
                )
        if stage.devices > plan.devices:
            raise PlanFileError(
                f"{path}: a stage takes {stage.devices} devices of {plan.devices}: make a new plan"
            )
    return plan
