"""What an engine really did, counted by its own scheduler.

A client sees the cached tokens of what it sends, but not what is recomputed after a preemption. So
every engine runs its scheduler with a counter around it. The counts lie in a small file that both
processes map, so that nothing is lost if the engine is stopped in mid step.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler

from caesura.scheduler.vllm import CaesuraAsyncScheduler, CaesuraScheduler

FIELDS = ("steps", "scheduled_tokens", "busy_seconds", "preemptions", "peak_running", "peak_blocks")


def new_ledger(path: Path) -> Path:
    """Write an empty ledger."""
    path.write_bytes(np.zeros(len(FIELDS)).tobytes())
    return path


def read_ledger(path: Path) -> dict[str, float]:
    """Return the counts by name."""
    return dict(zip(FIELDS, np.fromfile(path).tolist(), strict=True))


class Counting:
    """Mixin for schedulers: counts steps that computed something, and what they computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = self.vllm_config.additional_config["benchmark"]["ledger"]
        self._benchmark_counts = np.memmap(path, dtype=np.float64, mode="r+")
        self._benchmark_step_began = 0.0

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        self._benchmark_step_began = time.perf_counter()
        output = super().schedule(*args, **kwargs)
        pool = self.kv_cache_manager.block_pool
        used = pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
        self._benchmark_counts[1] += output.total_num_scheduled_tokens
        self._benchmark_counts[4] = max(self._benchmark_counts[4], len(output.num_scheduled_tokens))
        self._benchmark_counts[5] = max(self._benchmark_counts[5], used)
        return output

    def update_from_output(self, scheduler_output: SchedulerOutput, runner_output: Any) -> Any:
        outputs = super().update_from_output(scheduler_output, runner_output)
        if scheduler_output.total_num_scheduled_tokens:
            self._benchmark_counts[0] += 1
            self._benchmark_counts[2] += time.perf_counter() - self._benchmark_step_began
        return outputs

    def _preempt_request(self, *args: Any, **kwargs: Any) -> None:
        self._benchmark_counts[3] += 1
        super()._preempt_request(*args, **kwargs)


class StockLedgerScheduler(Counting, Scheduler):
    """vLLM's own scheduler, counted."""


class PausingLedgerScheduler(Counting, CaesuraScheduler):
    """Caesura's scheduler, counted."""


class StockAsyncLedgerScheduler(Counting, AsyncScheduler):
    """vLLM's own asynchronous scheduler, counted; its steps overlap, so busy time is an excess."""


class PausingAsyncLedgerScheduler(Counting, CaesuraAsyncScheduler):
    """Caesura's asynchronous scheduler, counted in the same way."""
