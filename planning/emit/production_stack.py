"""Values for the Helm chart of the vLLM production stack, which has a router."""

from collections.abc import Iterator, Mapping
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.emit.documents import yaml_file
from caesura.planning.emit.engines import names_of, summary_of
from caesura.planning.emit.image import (
    IMAGE,
    host_path,
    image_tag,
    is_local,
    model_directory,
    vllm_flags,
)
from caesura.planning.emit.ray_serve import SCHEDULER
from caesura.planning.plan import Placement, Plan

CPUS, MEMORY = 4, "16Gi"
"""What each pod asks for beside its GPUs."""


def production_stack_values(plan: Plan, number: int, application: Application) -> str:
    """Return the values of one stage, numbered from 1."""
    stage = plan.stages[number - 1]
    comments = [*summary_of(plan, application), *_usage(number)]
    document = {
        "servingEngineSpec": {
            "enableEngine": True,
            "strategy": {"type": "Recreate"},
            "startupProbe": {"periodSeconds": 10, "failureThreshold": 180},
            "modelSpec": [_engine(each, application) for each in stage.placements],
        },
        "routerSpec": {"enableRouter": True, "routingLogic": "roundrobin"},
    }
    return yaml_file(comments, document)


def _engine(placement: Placement, application: Application) -> Mapping[str, Any]:
    model = application.model(placement.model)
    directory = model_directory(model)
    flags = ["--served-model-name", model.name, "--scheduler-cls", SCHEDULER]
    values: dict[str, Any] = {
        "name": names_of(application)[model.name],
        "repository": IMAGE,
        "tag": image_tag(),
        "modelURL": directory or model.path,
        "replicaCount": placement.replicas,
        "requestCPU": CPUS,
        "requestMemory": MEMORY,
        "requestGPU": placement.tensor_parallel,
        "vllmConfig": {
            # The chart switches prefix caching off where this is missing.
            "enablePrefixCaching": True,
            "extraArgs": [*flags, *vllm_flags(model, placement)],
        },
    }
    if placement.tensor_parallel > 1:
        values["shmSize"] = MEMORY
    if is_local(model):
        source = {"path": host_path(model), "type": "Directory"}
        values["extraVolumes"] = [{"name": "weights", "hostPath": source}]
        values["extraVolumeMounts"] = [{"name": "weights", "mountPath": directory}]
    return values


def _usage(number: int) -> Iterator[str]:
    yield ""
    yield "For the Helm chart vllm-stack (https://vllm-project.github.io/production-stack)."
    yield f"This is stage {number}. The chart knows no stages in time: when a model of the stage"
    yield "before has finished, run this, which keeps the pods whose values are the same:"
    yield f"  helm upgrade --install plan vllm/vllm-stack -f production-stack-stage-{number}.yaml"
    yield "The pods run `vllm serve` with Caesura's scheduler, in the image of the Dockerfile."
