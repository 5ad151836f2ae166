"""A plan as Kubernetes objects: a file for each stage, with a Deployment and Service per model."""

from collections.abc import Iterator, Mapping
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.emit.documents import yaml_file
from caesura.planning.emit.engines import names_of, plain_name, summary_of
from caesura.planning.emit.image import (
    CACHE,
    IMAGE,
    PORT,
    dockerfile,
    host_path,
    image_tag,
    model_directory,
    serve_arguments,
)
from caesura.planning.emit.production_stack import production_stack_values
from caesura.planning.plan import Placement, Plan, Stage

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
