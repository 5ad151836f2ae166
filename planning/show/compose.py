"""A plan as a file for Docker compose: a service for each engine, and a profile for each stage."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from caesura.planning.application.application import Application
from caesura.planning.plan import Plan
from caesura.planning.show.engines import (
    CACHE,
    IMAGE,
    PORT,
    Engine,
    dockerfile,
    engines_of,
    host_path,
    image_tag,
    model_directory,
    plain_name,
    serve_arguments,
    summary_of,
    yaml_file,
)

LOADING_SECONDS = 1800
"""How long an engine may load before its health checks count."""
_HEALTH = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{PORT}/ready', timeout=5)"


def compose_files(plan: Plan, application: Application) -> Mapping[str, str]:
    """Return `compose.yaml` and the `Dockerfile` of its image, by file name."""
    engines = engines_of(plan, application)
    services = {each.name: _service(each, PORT + at) for at, each in enumerate(engines)}
    document = {
        "name": plain_name(application.name),
        "services": services,
        "volumes": {"cache": {}},
    }
    comments = [*summary_of(plan, application), *_usage(plan, engines)]
    return {"compose.yaml": yaml_file(comments, document), "Dockerfile": dockerfile()}


def _service(engine: Engine, port: int) -> Mapping[str, Any]:
    arguments = serve_arguments(engine.model, engine.placement, engine.name)
    directory = model_directory(engine.model)
    devices = [str(device) for device in engine.devices]
    volumes = [f"cache:{CACHE}"]
    if directory:
        volumes.append(_literal(f"{host_path(engine.model)}:{directory}:ro"))
    reserved = {"driver": "nvidia", "device_ids": devices, "capabilities": ["gpu"]}
    return {
        "image": f"{IMAGE}:{image_tag()}",
        "build": ".",
        "profiles": [_profile(number) for number in engine.stages],
        "command": [_literal(each) for each in arguments],
        "ports": [f"127.0.0.1:{port}:{PORT}"],
        "environment": {
            "CAESURA_API_KEY": "${CAESURA_API_KEY:?set the key that clients send}",
            "HF_TOKEN": "${HF_TOKEN:-}",
        },
        "volumes": volumes,
        "ipc": "host",
        "deploy": {"resources": {"reservations": {"devices": [reserved]}}},
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _HEALTH],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": f"{LOADING_SECONDS}s",
        },
        "restart": "on-failure",
    }


def _literal(text: str) -> str:
    """Return text in which compose puts no variables."""
    return text.replace("$", "$$")


def _profile(stage: int) -> str:
    return f"stage-{stage}"


def _usage(plan: Plan, engines: Sequence[Engine]) -> Iterator[str]:
    """Yield comments on what the format cannot say: when a stage follows, and who gets what."""
    yield ""
    yield "Compose knows no stages in time: each is a profile. Start the first one with"
    yield "  docker compose --profile stage-1 up -d --wait"
    for number in range(2, len(plan.stages) + 1):
        leaving = [
            each.name for each in engines if number - 1 in each.stages and number not in each.stages
        ]
        yield f"and, when a model of stage {number - 1} has finished, stage {number} with"
        if leaving:
            yield f"  docker compose --profile {_profile(number - 1)} stop {' '.join(leaving)}"
        yield f"  docker compose --profile {_profile(number)} up -d --wait"
    yield "An engine in both stages keeps running. `caesura run` does all of this by itself."
    yield ""
    yield "There is no router: each engine has a port of its own, on this machine only. Send each"
    yield "request to the port with the fewest requests in flight among those of its model:"
    by_model: dict[str, list[str]] = {}
    for at, each in enumerate(engines):
        by_model.setdefault(each.model.name, []).append(f"{PORT + at} ({each.name})")
    for model, ports in by_model.items():
        yield f"  {model}: {', '.join(ports)}"
    if any(each.placement.shares for each in engines):
        yield ""
        yield "Engines that share a device are kept apart only by --kv-cache-memory-bytes."
