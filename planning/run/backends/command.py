"""The command of an engine, and the environment that binds it to its devices."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from caesura.planning.run.host import HostError, Replica

NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")

CPU_OPTIONS = ("--no-enable-chunked-prefill",)
"""Options of engines on processors. There vLLM 0.32 ends with an error when it splits the prompt
of a request that has a seed."""


def engine_command(
    replica: Replica, more: Sequence[str] = (), host: str = "127.0.0.1"
) -> list[str]:
    """Return the command that serves a replica on a free port, which it prints as a URL.

    `more` are further options of `vllm serve`, which the model's own arguments override. `host` is
    the address to listen on.
    """
    model = replica.model
    named = ["--model", model.path] if model.path else []  # left out: the bundled model
    configured = ["--config", model.config] if model.config else []
    # A run replaces an engine that has died by a plan of its own.
    quiet = ["--no-restart", "--no-calibrate", "--no-trace", "--no-responses", "--host-gib", "0"]
    options = [*(() if _gpus() else CPU_OPTIONS), *more]
    if len(replica.devices) > 1:
        options += ["--tensor-parallel-size", str(len(replica.devices))]
    if replica.kv_bytes:
        options += ["--kv-cache-memory-bytes", str(replica.kv_bytes)]
    serve = [sys.executable, "-m", "caesura", "serve", *named, *configured, *quiet]
    at = ["--host", host, "--port", "0", "--served-model-name", model.name]
    return [*serve, *at, "--", *options, *model.arguments]


class Devices(Protocol):
    """What the devices of a machine are."""

    @property
    def count(self) -> int:
        """Return how many there are."""
        ...

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variables that bind an engine to devices, numbered from 0."""
        ...

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the processors that an engine on these devices may use."""
        ...


@dataclass(frozen=True, slots=True)
class CpuDevices:
    """Parts of the processors of this machine, of equal size, each of which is a device.

    Raises `HostError` if there are fewer processors than devices.
    """

    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(_processors()):
            raise HostError(
                f"{self.count} devices were asked for, but this machine has no GPU and"
                f" {len(_processors())} processors, each of which can be one device"
            )

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variables that give each rank the threads of its device."""
        bound = "|".join(",".join(map(str, self.cpus([device]))) for device in devices)
        threads = len(self.cpus(devices[:1]))
        bindings = {"VLLM_CPU_OMP_THREADS_BIND": bound, "OMP_NUM_THREADS": str(threads)}
        # The engine is bound as a whole, so that one rank needs no process of its own. Loading it
        # would take a third more.
        alone = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if len(devices) == 1 else {}
        return bindings | alone

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return the processors of the devices."""
        held = _processors()
        size = len(held) // self.count
        return tuple(cpu for device in devices for cpu in held[device * size : (device + 1) * size])


@dataclass(frozen=True, slots=True)
class GpuDevices:
    """The first GPUs of this machine that CUDA may use.

    Raises `HostError` if there are fewer GPUs than devices.
    """

    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= len(_gpus()):
            raise HostError(
                f"{self.count} devices were asked for, but this machine has {len(_gpus())} GPUs"
            )

    def environment(self, devices: Sequence[int]) -> dict[str, str]:
        """Return the variable that shows CUDA the devices only."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(_gpus()[device] for device in devices)}

    def cpus(self, devices: Sequence[int]) -> tuple[int, ...]:
        """Return all processors."""
        return _processors()


def local_devices(count: int) -> Devices:
    """Return devices of this machine: its GPUs if it has any, else parts of its processors.

    Raises `HostError` if there are fewer.
    """
    return GpuDevices(count) if _gpus() else CpuDevices(count)


def _processors() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


def _gpus() -> list[str]:
    """Return the names by which CUDA_VISIBLE_DEVICES selects this machine's GPUs."""
    if (shown := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [name for name in shown.split(",") if name]
    count = len(list(NVIDIA_GPUS.iterdir())) if NVIDIA_GPUS.is_dir() else 0
    return [str(number) for number in range(count)]
