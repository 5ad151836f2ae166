"""A plan as configurations of Ray Serve LLM: a file for each stage, an application per model."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.plan import Placement, Plan, Stage
from caesura.planning.show.engines import (
    EmitError,
    host_path,
    names_of,
    summary_of,
    vllm_flags,
    yaml_file,
)

BUILDER = "ray.serve.llm:build_openai_app"
SCHEDULER = "caesura.scheduler.vllm.CaesuraAsyncScheduler"
_ONE_FORM = "write it as `--name value` or `--name=value`"


def ray_serve_files(plan: Plan, application: Application) -> Mapping[str, str]:
    """Return the files `serve-stage-N.yaml`, by name."""
    files = {}
    for number, stage in enumerate(plan.stages, start=1):
        comments = [*summary_of(plan, application), *_usage(number, stage)]
        document = {
            "http_options": {"host": "127.0.0.1", "port": 8000},
            "applications": [_served(each, stage, application) for each in stage.placements],
        }
        files[f"serve-stage-{number}.yaml"] = yaml_file(comments, document)
    return files


def _served(placement: Placement, stage: Stage, application: Application) -> Mapping[str, Any]:
    """Return the application of one model.

    Each has its own, since `serve deploy` leaves an application alone whose configuration has not
    changed: a model that the next stage has too is not loaded again.
    """
    model = application.model(placement.model)
    name = names_of(application)[model.name]
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": model.name, "model_source": host_path(model)},
        "deployment_config": {"num_replicas": placement.replicas},
        "engine_kwargs": {
            "scheduler_cls": SCHEDULER,
            **keyword_arguments(vllm_flags(model, placement)),
        },
    }
    share = device_share(placement, stage)
    if share < 1:
        bundle = {"CPU": 1, "GPU": round(float(share), 4)}
        config["placement_group_config"] = {"bundle_per_worker": bundle, "strategy": "PACK"}
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": BUILDER,
        "args": {"llm_configs": [config]},
    }


def device_share(placement: Placement, stage: Stage) -> Fraction:
    """Return the part of a device that each worker of a placement takes."""
    if not placement.shares:
        return Fraction(1)
    return Fraction(1, sum(each.shares == placement.shares for each in stage.placements))


def keyword_arguments(flags: Sequence[str]) -> Mapping[str, Any]:
    """Return flags of `vllm serve` as keyword arguments of vLLM's engine.

    A flag without a value is True, or False if it begins with `--no-`. Values that are JSON are
    read as such. Raises `EmitError` for a value without a flag.
    """
    found: dict[str, Any] = {}
    name = ""
    for word in flags:
        if word.startswith("--"):
            flag, equals, value = word[2:].partition("=")
            name = "" if equals else flag
            found[flag] = _value(value) if equals else not flag.startswith("no-")
        elif name:
            found[name], name = _value(word), ""
        else:
            raise EmitError(f"{word!r} belongs to no flag of vllm serve: {_ONE_FORM}")
    return {
        (flag.removeprefix("no-") if value is False else flag).replace("-", "_"): value
        for flag, value in found.items()
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _usage(number: int, stage: Stage) -> Iterator[str]:
    yield ""
    yield "Every node needs Caesura beside ray[serve,llm] and vLLM: pip install it there."
    yield f"This is stage {number}. Ray Serve knows no stages in time: when a model of the stage"
    yield "before has finished, deploy this file in its place:"
    yield f"  serve deploy serve-stage-{number}.yaml"
    yield "A model answers at http://127.0.0.1:8000/NAME/v1, NAME being its route_prefix. Ray Serve"
    yield "spreads its requests over its replicas."
    shared = sorted({each.shares for each in stage.placements if each.shares})
    if shared:
        yield "Parts of a GPU are promises only: Ray may put them on other devices than the plan"
        yield f"does ({', '.join(shared)}), and kv_cache_memory_bytes bounds each engine's memory."
