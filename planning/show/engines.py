"""The engines of a plan and their containers, as YAML files for deployments describe them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from caesura.distribution import __version__, install
from caesura.planning.application.application import Application, Model
from caesura.planning.plan import Placement, Plan, Stage
from caesura.scheduler.errors import UsageError

Devices = tuple[int, ...]
MAX_NAME_CHARACTERS = 40
"""Names of Kubernetes hold at most 63 characters, and some are made longer."""


class EmitError(UsageError, ValueError):
    """A plan cannot be written as files for a deployment. The message says why."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica of a placement, on the devices (numbered from 0) that it keeps while it runs.

    `name` is its own among the engines of a plan. `stages` are the numbers of the stages in which
    it runs, from 1, without a gap.
    """

    name: str
    model: Model
    placement: Placement
    devices: Devices
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Replica:
    """One engine of a placement, whose `replicas` is 1."""

    placement: Placement
    number: int

    @property
    def first_device(self) -> int:
        """Return the first of its devices, counted in its block."""
        return self.number * self.placement.tensor_parallel if self.placement.shares else 0


_Block = tuple[_Replica, ...]
"""Replicas on the same devices: those that share them, or one replica alone."""


def engines_of(plan: Plan, application: Application) -> tuple[Engine, ...]:
    """Return the plan's engines in the order of their first stages.

    A replica that the next stage has on the same devices is one engine. Raises `EmitError` for a
    stage that takes more devices than the plan has.
    """
    names = names_of(application)
    engines: list[Engine] = []
    counts: dict[str, int] = {}
    running: dict[tuple[_Replica, Devices], int] = {}
    blocks: Mapping[_Block, Devices] = {}
    for number, stage in enumerate(plan.stages, start=1):
        blocks = _place(stage, blocks, plan.devices, number)
        before, running = running, {}
        for replica, devices in _replicas(blocks):
            at = before.get((replica, devices))
            if at is None:
                at = len(engines)
                model = application.model(replica.placement.model)
                count = counts[model.name] = counts.get(model.name, -1) + 1
                name = f"{names[model.name]}-{count}"
                engines.append(Engine(name, model, replica.placement, devices, ()))
            engines[at] = replace(engines[at], stages=(*engines[at].stages, number))
            running[replica, devices] = at
    return tuple(engines)


def names_of(application: Application) -> Mapping[str, str]:
    """Return a `plain_name` for each model, all different."""
    taken: dict[str, str] = {}
    for model in application.models:
        name = plain = plain_name(model.name)
        number = 2
        while name in taken.values():
            name, number = f"{plain}-{number}", number + 1
        taken[model.name] = name
    return taken


def plain_name(text: str) -> str:
    """Return a name of lower-case letters, digits and hyphens that begins with a letter."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    plain = plain if plain[:1].isalpha() else f"m-{plain}"
    return plain[:MAX_NAME_CHARACTERS].strip("-")


def _place(
    stage: Stage, before: Mapping[_Block, Devices], devices: int, number: int
) -> Mapping[_Block, Devices]:
    """Return the devices of a stage's blocks; those of the stage before stay where they were."""
    blocks = sorted(_blocks(stage), key=_width, reverse=True)
    placed = {block: before[block] for block in blocks if block in before}
    used = {device for at in placed.values() for device in at}
    free = [device for device in range(devices) if device not in used]
    for block in blocks:
        width = _width(block)
        if block not in placed:
            placed[block], free = tuple(free[:width]), free[width:]
        if len(placed[block]) < width:
            raise EmitError(
                f"stage {number} takes {stage.devices} devices, and the plan has {devices}: "
                f"plan with --devices {stage.devices}"
            )
    return placed


def _blocks(stage: Stage) -> Iterator[_Block]:
    """Yield the replicas of a stage; those that share devices are one block."""
    groups: dict[str, list[_Replica]] = {}
    for placement in stage.placements:
        one = replace(placement, replicas=1)
        replicas = [_Replica(one, number) for number in range(placement.replicas)]
        if placement.shares:
            groups.setdefault(placement.shares, []).extend(replicas)
        else:
            yield from ((replica,) for replica in replicas)
    yield from map(tuple, groups.values())


def _width(block: _Block) -> int:
    """Return the number of devices that a block takes."""
    return max(replica.first_device + replica.placement.tensor_parallel for replica in block)


def _replicas(blocks: Mapping[_Block, Devices]) -> Iterator[tuple[_Replica, Devices]]:
    for block, devices in blocks.items():
        for replica in block:
            first = replica.first_device
            yield replica, devices[first : first + replica.placement.tensor_parallel]


def summary_of(plan: Plan, application: Application) -> Iterator[str]:
    """Yield lines that say what a plan does, and what no file holds, for the comments of files."""
    time = plan.makespan
    yield f"Plan by the strategy {plan.strategy} for {plan.devices} devices:"
    yield f"{time.mean:.0f} s expected, {time.low:.0f} to {time.high:.0f} s."
    for number, stage in enumerate(plan.stages, start=1):
        yield f"Stage {number}, {stage.seconds:.0f} s expected:"
        for each in stage.placements:
            shared = f", shared devices ({each.shares})" if each.shares else ""
            yield (
                f"  {each.model}: engines {each.replicas}, "
                f"devices of each {each.tensor_parallel}{shared}"
            )
    asks = {(task.model, asked): None for task in application.tasks for asked in task.asks}
    for model, asked in asks:
        yield f"{model} asks {asked} as a tool: its server needs a caesura.toml with"
        yield f"[tools.ask_model], whose url is that of {asked}. These files have none."


MAX_LINE_CHARACTERS = 10_000


def yaml_file(comments: Iterable[str], *documents: Mapping[str, Any]) -> str:
    """Return the text of a YAML file; each of `comments` is a line of it.

    Raises `EmitError` where PyYAML, which comes with vLLM, is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise EmitError(f"writing these files needs PyYAML: {install('planning')}") from error

    head = "".join(f"# {line}".rstrip() + "\n" for line in comments)
    parts = (
        # A value that stands in two places is written twice: some readers know no aliases.
        yaml.safe_dump(json.loads(json.dumps(each)), sort_keys=False, width=MAX_LINE_CHARACTERS)
        for each in documents
    )
    return head + "---\n".join(parts)


VLLM_VERSION = "0.32.0"
IMAGE = "caesura-vllm"
PORT = 8000
CACHE = "/root/.cache"
"""Where weights of the Hub, and calibrations, are kept in the container."""
_LOCAL = ("/", "./", "../", "~")


def image_tag() -> str:
    """Return the tag of the image, which names the versions of both packages."""
    return f"{__version__}-vllm{VLLM_VERSION}"


def dockerfile() -> str:
    """Return a Dockerfile that adds Caesura to vLLM's own image."""
    return f"""\
# vLLM's own image with Caesura. In a clone of Caesura, `pip wheel --no-deps -w DIR .` makes the
# wheel: put it beside this file, then
#   docker build -t {IMAGE}:{image_tag()} .
FROM vllm/vllm-openai:v{VLLM_VERSION}
COPY caesura-*.whl /tmp/
RUN python3 -m pip install --no-cache-dir /tmp/caesura-*.whl && rm /tmp/caesura-*.whl
ENTRYPOINT ["caesura", "serve"]
"""


def serve_arguments(model: Model, placement: Placement, *hosts: str) -> list[str]:
    """Return the arguments of `caesura serve` in the container.

    `hosts` are the names under which clients reach it. A local model is read from its
    `model_directory`, where its files must be mounted.
    """
    arguments = ["--model", model_directory(model) or model.path, "--served-model-name", model.name]
    arguments += ["--host", "0.0.0.0", "--port", str(PORT), "--no-trace"]
    for host in hosts:
        arguments += ["--allowed-host", host]
    flags = vllm_flags(model, placement)
    return [*arguments, *(["--", *flags] if flags else [])]


def model_directory(model: Model) -> str:
    """Return where a model's own directory is mounted, or "" for one from the Hub."""
    return f"/models/{plain_name(model.name)}" if is_local(model) else ""


def host_path(model: Model) -> str:
    """Return a local model's directory as an absolute path, or its name on the Hub."""
    return str(Path(model.path).expanduser().absolute()) if is_local(model) else model.path


def is_local(model: Model) -> bool:
    """Return whether a model's path is one of this machine's directories."""
    return model.path.startswith(_LOCAL) or Path(model.path).is_dir()


def vllm_flags(model: Model, placement: Placement) -> list[str]:
    """Return the flags of `vllm serve` for an engine of a placement, without the model."""
    flags = list(model.arguments)
    if placement.tensor_parallel > 1:
        flags += ["--tensor-parallel-size", str(placement.tensor_parallel)]
    if placement.kv_bytes:
        flags += ["--kv-cache-memory-bytes", str(placement.kv_bytes)]
    return flags
