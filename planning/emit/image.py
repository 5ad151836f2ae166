"""The container of an engine: its image, and the arguments of `caesura serve` in it."""

from pathlib import Path

from caesura.distribution import __version__
from caesura.planning.application.application import Model
from caesura.planning.emit.engines import plain_name
from caesura.planning.plan import Placement

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
