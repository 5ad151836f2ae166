"""What the tests of the worker's side of swapping share: a KV cache made by hand, steps, troubles.

Delays, corruption and failures are put into the copier, which a worker is given.
"""

from collections.abc import Callable, Sequence
from threading import Semaphore
from typing import Any

import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    compute_layout_strides,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache

from caesura.scheduler.vllm.engine.swap.copier import Task
from caesura.scheduler.vllm.engine.swap.messages import Load, Save, SwapOrders, SwapReport
from caesura.scheduler.vllm.engine.swap.regions import Layer
from caesura.scheduler.vllm.engine.swap.threads import ThreadCopier
from caesura.scheduler.vllm.engine.swap.worker import SwapWorker

BLOCKS, LAYERS, SLOTS = 24, 3, 16
# Out of order, as a dictionary may be; and one with a number of two digits.
NAMES = ["model.layers.10.attn", "model.layers.0.attn", "model.layers.2.attn"]
IN_ORDER = sorted(NAMES, key=lambda name: int(name.split(".")[2]))
SPEC = FullAttentionSpec(block_size=32, num_kv_heads=4, head_size=8, dtype=torch.bfloat16)


def make_config(
    layout: KVCacheLayout = KVCacheLayout.LBHNC, spec: Any = SPEC, groups: int = 1
) -> KVCacheConfig:
    layer, block, *_ = compute_layout_strides(SPEC, BLOCKS, LAYERS, layout)
    size = SPEC.page_size_bytes * BLOCKS * LAYERS
    return KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[KVCacheTensor(size, NAMES, layer, block)],
        kv_cache_groups=[KVCacheGroupSpec(NAMES, spec) for _ in range(groups)],
    )


CONFIG = make_config()
HOST_BYTES = SLOTS * LAYERS * SPEC.page_size_bytes + 100


def fill(caches: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    for cache in caches.values():
        cache.copy_(torch.randn(cache.shape))
    return caches


def make_caches(device: str = "cpu") -> dict[str, torch.Tensor]:
    return fill(allocate_kv_cache(CONFIG, torch.device(device), KVCacheLayout.LBHNC))


def make_worker(
    caches: dict[str, torch.Tensor], copier: Any = None, config: KVCacheConfig = CONFIG
) -> SwapWorker:
    worker = SwapWorker(HOST_BYTES, config, copier=copier)
    worker.register_kv_caches(caches)
    return worker


def step(
    worker: SwapWorker,
    *orders: Save | Load,
    forward: bool = True,
    seen: Callable[[str], None] = lambda name: None,
) -> tuple[Any, set[int], SwapReport]:
    """Call the hooks as vLLM's runner does; `seen` is the attention of a layer."""
    loads = [order for order in orders if isinstance(order, Load)]
    saves = [order for order in orders if isinstance(order, Save)]
    worker.begin_step(SwapOrders(loads, saves))
    if any(load.in_step for load in loads):
        worker.start_load_kv()
    for name in IN_ORDER if forward else ():
        worker.wait_for_layer_load(name)
        seen(name)
        worker.save_kv_layer(name)
    worker.wait_for_save()
    results = worker.get_transfer_results()
    return results, worker.get_block_ids_with_load_errors(), worker.report() or SwapReport()


def in_step(blocks: list[int], slots: list[int]) -> Load:
    return Load("now", blocks, slots, in_step=True, last=True)


def later(request: str, blocks: list[int], slots: list[int], last: bool = True) -> Load:
    return Load(request, blocks, slots, in_step=False, last=last)


class Stage:
    """The delay: the copy of each layer waits until a test lets it go, by a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[tuple[int, str]] = []
        self._begun, self._allowed = Semaphore(0), Semaphore(0)

    def copier(self, layers: Sequence[Layer], slots: int) -> ThreadCopier:
        """Return a copier whose copies wait here, as a worker asks for it."""
        stage = self

        class Staged(ThreadCopier):
            def copy(self, layer: int, task: Task) -> None:
                stage._begun.release()
                assert stage._allowed.acquire(timeout=60)
                super().copy(layer, task)
                stage.log.append((layer, "save" if task.out else "load"))

        return Staged(layers, slots, lambda: self.now)

    def begun(self, layers: int) -> None:
        """Wait until the copies of so many more layers have begun."""
        for _ in range(layers):
            assert self._begun.acquire(timeout=60)

    def allow(self, layers: int) -> None:
        """Let the copies of so many more layers go on."""
        self._allowed.release(layers)


class Zeroing(ThreadCopier):
    """The corruption: what is saved is zeros."""

    def copy(self, layer: int, task: Task) -> None:
        super().copy(layer, task)
        if task.out:
            self.host[layer][list(task.order.slots)] = 0


def failing(base: Any) -> Any:
    """Copies that touch block 13 fail, in the second layer."""

    class Failing(base):  # type: ignore[misc]
        def copy(self, layer: int, task: Task) -> None:
            if 13 in task.blocks and layer == 1:
                raise OSError("block 13")
            super().copy(layer, task)

    return Failing


def until_idle(worker: SwapWorker) -> tuple[SwapReport, set[str], set[str]]:
    """Wait for everything, and take in what comes of it."""
    assert worker._copier is not None
    worker._copier.idle(60)
    results, bad, report = step(worker)
    assert not bad
    return report, results.finished_recving, results.failed_recving
