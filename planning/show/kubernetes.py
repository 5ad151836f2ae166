"""A plan for Kubernetes: its objects, and values for the chart of vLLM's production stack."""

from collections.abc import Iterator, Mapping
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.plan import Placement, Plan, Stage
from caesura.planning.show.engines import (
    CACHE,
    IMAGE,
    PORT,
    dockerfile,
    host_path,
    image_tag,
    is_local,
    model_directory,
    names_of,
    plain_name,
    serve_arguments,
    summary_of,
    vllm_flags,
    yaml_file,
)
from caesura.planning.show.ray_serve import SCHEDULER

CPUS, MEMORY = 4, "16Gi"
"""What each pod asks for beside its GPUs."""


def production_stack_values(plan: Plan, number: int, application: Application) -> str:
    """Return the values of one stage, numbered from 1."""
    stage = plan.stages[number - 1]
    comments = [*summary_of(plan, application), *_helm_usage(number)]
    document = {
        "servingEngineSpec": {
            "enableEngine": True,
            "strategy": {"type": "Recreate"},
            "startupProbe": {"periodSeconds": 10, "failureThreshold": 180},
            "modelSpec": [_engine_values(each, application) for each in stage.placements],
        },
        "routerSpec": {"enableRouter": True, "routingLogic": "roundrobin"},
    }
    return yaml_file(comments, document)


def _engine_values(placement: Placement, application: Application) -> Mapping[str, Any]:
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


def _helm_usage(number: int) -> Iterator[str]:
    yield ""
    yield "For the Helm chart vllm-stack (https://vllm-project.github.io/production-stack)."
    yield f"This is stage {number}. The chart knows no stages in time: when a model of the stage"
    yield "before has finished, run this, which keeps the pods whose values are the same:"
    yield f"  helm upgrade --install plan vllm/vllm-stack -f production-stack-stage-{number}.yaml"
    yield "The pods run `vllm serve` with Caesura's scheduler, in the image of the Dockerfile."


PROBE_SECONDS = 10
LOADING_SECONDS = 1800
"""How long an engine may load before Kubernetes starts it again."""
HOST_CACHE = "/var/lib/caesura"
SECRET, SECRET_KEY = "caesura-api-key", "key"


def kubernetes_files(plan: Plan, application: Application) -> Mapping[str, str]:
    """Return `stage-N.yaml`, `production-stack-stage-N.yaml` and the `Dockerfile`, by name."""
    files = {"Dockerfile": dockerfile()}
    for number, stage in enumerate(plan.stages, start=1):
        objects = [
            each for placement in stage.placements for each in _objects(placement, application)
        ]
        comments = [
            *summary_of(plan, application),
            *_usage(number, stage, plain_name(application.name)),
        ]
        files[f"stage-{number}.yaml"] = yaml_file(comments, *objects)
        files[f"production-stack-stage-{number}.yaml"] = production_stack_values(
            plan, number, application
        )
    return files


def _objects(placement: Placement, application: Application) -> Iterator[Mapping[str, Any]]:
    name = names_of(application)[placement.model]
    labels = {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/part-of": plain_name(application.name),
    }
    metadata = {"name": name, "labels": labels}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": placement.replicas,
            # A rolling update would need the devices of both versions.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(placement, application)},
        },
    }
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"name": "http", "port": PORT}]},
    }


def _pod(placement: Placement, application: Application) -> Mapping[str, Any]:
    model = application.model(placement.model)
    name = names_of(application)[model.name]
    arguments, directory = serve_arguments(model, placement, name), model_directory(model)
    mounts = [("cache", CACHE, HOST_CACHE, "DirectoryOrCreate")]
    if directory:
        mounts.append(("weights", directory, host_path(model), "Directory"))
    container = {
        "name": "engine",
        "image": f"{IMAGE}:{image_tag()}",
        "args": arguments,
        "ports": [{"name": "http", "containerPort": PORT}],
        "env": [{"name": "CAESURA_API_KEY", "valueFrom": {"secretKeyRef": _secret()}}],
        "resources": {"limits": {"nvidia.com/gpu": placement.tensor_parallel}},
        "startupProbe": _probe("/ready", LOADING_SECONDS // PROBE_SECONDS),
        "readinessProbe": _probe("/ready", 1),
        "livenessProbe": _probe("/health", 6),
        "volumeMounts": [
            *({"name": each, "mountPath": at} for each, at, _, _ in mounts),
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    }
    volumes = [
        *({"name": each, "hostPath": {"path": at, "type": kind}} for each, _, at, kind in mounts),
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return {"containers": [container], "volumes": volumes}


def _secret() -> Mapping[str, str]:
    return {"name": SECRET, "key": SECRET_KEY}


def _probe(path: str, failures: int) -> Mapping[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": PROBE_SECONDS,
        "failureThreshold": failures,
    }


def _usage(number: int, stage: Stage, application: str) -> Iterator[str]:
    yield ""
    yield "Clients send the key of a secret, which is made once:"
    yield f"  kubectl create secret generic {SECRET} --from-literal={SECRET_KEY}=..."
    yield f"This is stage {number}. Kubernetes knows no stages in time: when a model of the stage"
    yield "before has finished, apply this file, which also deletes what the stage does not have:"
    yield f"  kubectl apply -f stage-{number}.yaml --prune \\"
    yield f"    -l app.kubernetes.io/part-of={application}"
    yield "Models that the stage before has too keep their pods, unless their arguments differ."
    yield f"A model answers at http://NAME:{PORT}/v1, NAME being its Service, which picks replicas"
    yield "at random. production-stack-stage-*.yaml is the same with a router, as values for Helm."
    groups = {each.shares for each in stage.placements if each.shares}
    for group in sorted(groups):
        members = [each.model for each in stage.placements if each.shares == group]
        yield f"The plan puts {', '.join(members)} on the same devices. Kubernetes counts"
        yield f"whole GPUs: let the device plugin share each {len(members)} times (time-slicing)."
