"""The devices of this machine, as far as a plan has to know them without starting an engine."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from caesura.simulator.latency.analytic import A100_80G, H100_80G, USED, Device
from caesura.simulator.machine import BLOCK_TOKENS

CPU = "CPU core"
USED_MEMORY = 0.8
"""The share of the main memory that engines on cores may take together."""

CORE_KV_BYTES = 4 << 30
CORE_BLOCK_TOKENS = 32
BUNDLED_KV_BYTES = 256 << 20
"""The KV cache of an engine on cores, its blocks, and that of the bundled model on any device, as
`caesura serve` sets them by default."""

CORE_BANDWIDTH = 10e9
CORE_FLOPS = 50e9
CORE_BASE = 4e-3
"""Bytes and FLOP per second of a core and the base time of a step, assumed until measured."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of device: its name in files of measurements, and its rates, which are assumed.

    `workspace` are the bytes that an engine takes beside weights and KV cache. `kv_bytes` are those
    of a KV cache on each device that no argument sizes; 0: all that weights leave.
    """

    name: str
    device: Device
    workspace: float
    kv_bytes: int = 0
    block_tokens: int = BLOCK_TOKENS

    def room(self, utilization: float = USED) -> float:
        """Return the bytes of a device for weights and KV cache, if engines use so much of it."""
        return utilization * self.device.memory - self.workspace


def this_machine(devices: int = 0) -> Kind:
    """Return the kind of this machine's devices: a GPU as `nvidia-smi` names it, or processors.

    Without a GPU its processors are shared by `devices` devices; 0: each is a device of its own.
    """
    name = _gpu()
    if name:
        device = H100_80G if "H100" in name or "H200" in name else A100_80G
        return Kind(name, device, 2e9)
    held = len(os.sched_getaffinity(0))
    count = min(devices, held) or held
    cores = held // count
    memory = USED_MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / count
    device = Device(memory, CORE_BANDWIDTH * cores, CORE_FLOPS * cores, CORE_BASE, 1e9)
    name = f"{cores} {CPU}{'s' * (cores > 1)}"
    return Kind(name, device, 5e8, CORE_KV_BYTES, CORE_BLOCK_TOKENS)


def default_kv_bytes(path: str, kind: Kind) -> int:
    """Return the bytes of a KV cache on each device that no argument sizes; 0: all that is left.

    An empty path stands for the bundled model.
    """
    return kind.kv_bytes if path else BUNDLED_KV_BYTES


@cache
def _gpu() -> str:
    """Return the name of the first GPU; empty without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        shown = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(shown.stdout.splitlines()), "").strip()
