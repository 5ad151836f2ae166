"""The machine that figures come from: its processor, and what else ran on it meanwhile."""

import multiprocessing
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Of x86 processors and of ARM's, as Linux names them."""
END_SECONDS = 30.0
"""What a child has to end before it is left out of what was ours."""
BYTES = {"bfloat16": 2, "float32": 4}
"""Of a number, by vLLM's name of its type."""


def processor() -> str:
    """Return the name of the processor's model, or of its architecture where Linux has no name."""
    return _cpuinfo().get("model name", platform.machine())


def has_bfloat16() -> bool:
    """Return whether the processor computes in bfloat16; one that does not is slower in it."""
    info = _cpuinfo()
    flags = info.get("flags", info.get("Features", "")).split()
    return not BFLOAT16_FLAGS.isdisjoint(flags)


def number_type() -> str:
    """Return the type that models compute in here: bfloat16, or float32 where that is quicker."""
    # Slow to import, and only what starts engines asks.
    from vllm.platforms import current_platform

    return "float32" if current_platform.is_cpu() and not has_bfloat16() else "bfloat16"


def _cpuinfo() -> dict[str, str]:
    """Return what Linux tells of the first core."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().split("\n\n")[0].splitlines() if path.exists() else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


@dataclass
class Load:
    """How busy others keep the machine between `__enter__` and `__exit__`.

    Children count as ours once they were waited for, so this waits for those that are ending.
    """

    others: float = 0.0
    """The share of all cores' time that other programs used, the hypervisor's other guests too."""
    _began: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0), repr=False)

    def __enter__(self) -> "Load":
        self._began = _times()
        return self

    def __exit__(self, *exc: object) -> None:
        # vLLM kills an engine that does not end at once, and does not wait for it.
        for child in multiprocessing.active_children():
            child.join(END_SECONDS)
        began, busy, ours = (now - then for now, then in zip(_times(), self._began, strict=True))
        cores = psutil.cpu_count() or 1
        self.others = max(0.0, busy - ours) / (cores * began) if began else 0.0


def _times() -> tuple[float, float, float]:
    """Return the clock, all cores' busy seconds, and those of this process and its children."""
    all_cores = psutil.cpu_times()
    # Linux counts a guest's time in its user's too.
    idle = all_cores.idle + all_cores.iowait + all_cores.guest + all_cores.guest_nice
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system
    return time.monotonic(), sum(all_cores) - idle, ours


@contextmanager
def beside(programs: int) -> Iterator[None]:
    """Keep so many cores busy with copies and sums, as other programs on a shared machine would."""
    context = multiprocessing.get_context("spawn")
    running = [context.Process(target=_busy, daemon=True) for _ in range(programs)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.join()


def _busy() -> None:
    import numpy as np

    # Larger than a core's share of the cache, so that it takes memory's bandwidth as well.
    here, there = np.ones((2, 8 << 20), dtype=np.float32)
    parent = os.getppid()
    while os.getppid() == parent:  # also where the parent was killed
        np.copyto(there, here)
        there.sum()
