"""The layout of the KV cache: where the bytes of a block are, layer by layer.

The shape and strides of a layer's tensor show a block as one or several dense runs of bytes. A
block is one run where its heads and tokens are contiguous. It has a run each for keys and values
where these are the outermost dimension, and a run per head where a head's blocks are contiguous.
So every layout of vLLM becomes a list of `[blocks, bytes]` views, and copies handle plain bytes.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.kv_cache_interface import KVCacheConfig

from caesura.scheduler.vllm.engine.port.layout import unknown_in

# With more runs per block than this, recomputing a block is no slower than copying it.
MAX_RUNS = 256


class SwapUnavailable(Exception):
    """Raised if this KV cache cannot be swapped; the message gives the reason."""


@dataclass(slots=True)
class Layer:
    """The KV cache of one layer, or of layers that share it: uint8 views `[blocks, bytes]`."""

    names: list[str]
    parts: list[torch.Tensor]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in this layer."""
        return sum(part.shape[1] for part in self.parts)


def block_bytes(config: KVCacheConfig) -> int:
    """Return the bytes of one block over all layers, padding included.

    All layers share one allocation, whose size the scheduler knows too. The scheduler sees only
    one spec even where layers differ, so specs serve only where no allocation is planned.
    """
    _check(config)
    if config.kv_cache_tensors:
        return int(config.kv_cache_tensors[0].size) // int(config.num_blocks)
    groups = config.kv_cache_groups
    return max(int(one.kv_cache_spec.page_size_bytes) * len(one.layer_names) for one in groups)


def host_slots(config: KVCacheConfig, host_bytes: int) -> int:
    """Return how many blocks fit into `host_bytes`; 0 if the cache cannot be swapped.

    Both sides of the connector call this function. The scheduler knows the KV cache of the first
    worker only, so workers tell theirs at the start (`WorkerMemory`).
    """
    try:
        return max(host_bytes, 0) // block_bytes(config)
    except SwapUnavailable:
        return 0


def worker_share(config: KVCacheConfig, layers: int, workers: int, stages: int) -> float:
    """Return a worker's share of the KV of every block, and so of the engine's host memory.

    Each of `stages` stages of a pipeline holds some of the model's `layers`; its workers divide
    their heads evenly.
    """
    if stages == 1:
        return 1 / workers
    own = sum(len(group.layer_names) for group in config.kv_cache_groups)
    return min(1.0, own / layers) * stages / workers


def find_layers(kv_caches: dict[str, Any], config: KVCacheConfig) -> list[Layer]:
    """Return the layers in the order in which they run; raise `SwapUnavailable` if unsure."""
    most = block_bytes(config)
    if len(config.kv_cache_groups) > 1:
        return _pages(kv_caches, config)
    expected = {name for tensor in config.kv_cache_tensors for name in tensor.layers}
    if not kv_caches or not expected <= kv_caches.keys():
        raise SwapUnavailable(f"layers have no KV cache: {sorted(expected - kv_caches.keys())}")
    layers: dict[tuple[int, ...], Layer] = {}
    for name in sorted(kv_caches, key=_position):
        parts = _parts(name, kv_caches[name], config.num_blocks)
        layer = layers.setdefault(tuple(part.data_ptr() for part in parts), Layer([], parts))
        layer.names.append(name)
    found = sum(layer.block_bytes for layer in layers.values())
    if found > most:
        raise SwapUnavailable(f"blocks have {found} bytes where the plan has {most}")
    if len({part.device for layer in layers.values() for part in layer.parts}) > 1:
        raise SwapUnavailable("the layers of the KV cache are on several devices")
    return list(layers.values())


def _check(config: KVCacheConfig) -> None:
    """Raise `SwapUnavailable` unless all that a request keeps is in blocks of one allocation."""
    if not config.kv_cache_groups:
        raise SwapUnavailable("the model has no KV cache")
    if unknown := unknown_in(config):
        raise SwapUnavailable(unknown)
    if any(tensor.host_resident for tensor in config.kv_cache_tensors):
        raise SwapUnavailable("the KV cache is in host memory already")
    if len({tensor.size for tensor in config.kv_cache_tensors}) > 1:
        raise SwapUnavailable("the KV cache has several allocations of different sizes")
    if config.num_blocks < 1:
        raise SwapUnavailable("the KV cache has no blocks")


def _pages(kv_caches: dict[str, Any], config: KVCacheConfig) -> list[Layer]:
    """Return the pages of a block, as the plan of a KV cache with several groups lays them out.

    The groups' layers overlay each other: whichever group has a block, its bytes are the same.
    """
    tensors: list[torch.Tensor] = []
    for cache in kv_caches.values():
        tensors += cache if isinstance(cache, list | tuple) else [cache]
    if not tensors or len({one.untyped_storage().data_ptr() for one in tensors}) != 1:
        raise SwapUnavailable("the groups' layers are not in one allocation")
    raw = torch.empty(0, dtype=torch.uint8, device=tensors[0].device)
    raw = raw.set_(tensors[0].untyped_storage())
    pages: dict[int, Layer] = {}
    for tensor in config.kv_cache_tensors:
        packed = tensor.block_stride > tensor.layer_stride
        for at, name in enumerate(tensor.layers):
            start = 0 if packed else tensor.offset + at * tensor.layer_stride
            if start not in pages:
                size = (config.num_blocks, tensor.block_stride)
                view = raw.as_strided(size, (tensor.block_stride, 1), start)
                pages[start] = Layer([], [view])
            pages[start].names.append(name)
    found = sum(page.block_bytes for page in pages.values())
    if found != block_bytes(config):
        raise SwapUnavailable(
            f"a block's pages are not dense: {found} of {block_bytes(config)} bytes"
        )
    return [pages[start] for start in sorted(pages)]


def _position(name: str) -> tuple[int, ...]:
    """Return the numbers in a layer's name, (10,) for `model.layers.10.self_attn.attn`."""
    return tuple(int(number) for number in re.findall(r"\d+", name))


def _parts(name: str, cache: Any, blocks: int) -> list[torch.Tensor]:
    """Return views of one layer's cache, one per dense run of bytes in a block."""
    view = _blocks_first(name, cache, blocks)
    size = view.element_size()
    run, outer = size, []
    for length, stride in sorted(zip(view.shape[1:], view.stride()[1:], strict=True), key=_stride):
        if length > 1 and stride * size == run:
            run *= length
        elif length > 1:
            outer.append((length, stride * size))
    step = view.stride(0) * size
    if any(stride < run for _, stride in outer) or (step < run and blocks > 1):
        raise SwapUnavailable(f"the blocks of {name} overlap: strides {view.stride()}")
    offsets = [view.storage_offset() * size]
    for length, stride in reversed(outer):
        offsets = [offset + index * stride for offset in offsets for index in range(length)]
    if len(offsets) > MAX_RUNS:
        raise SwapUnavailable(f"a block of {name} has {len(offsets)} runs, above {MAX_RUNS}")
    raw = torch.empty(0, dtype=torch.uint8, device=view.device).set_(view.untyped_storage())
    return [raw.as_strided((blocks, run), (step, 1), offset) for offset in offsets]


def _blocks_first(name: str, cache: Any, blocks: int) -> torch.Tensor:
    """Return a view of a layer's cache with shape `[blocks, kernel blocks per block, ...]`.

    Attention kernels may divide a block into several consecutive smaller ones.
    """
    if not isinstance(cache, torch.Tensor) or cache.ndim < 2:
        raise SwapUnavailable(f"the cache of {name} is not a tensor with a block dimension")
    if cache.shape[0] == 2 and cache.shape[1] % blocks == 0 and blocks > 2:
        cache = cache.movedim(1, 0)
    if cache.shape[0] % blocks or not cache.shape[0]:
        raise SwapUnavailable(f"{name} has no dimension of {blocks} blocks: {cache.shape}")
    return cache.unflatten(0, (blocks, cache.shape[0] // blocks))


def _stride(dimension: tuple[int, int]) -> int:
    return dimension[1]
