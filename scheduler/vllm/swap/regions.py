"""Where the bytes of a block lie in the KV cache, layer by layer.

A block of a layer is found from the tensor that the layer is given, by its shape and strides, as
one or several dense runs of bytes: one where heads and tokens of a block lie together, in whatever
order and however far the blocks are apart; one each for keys and values where these are the
outermost dimension; one per head where a head's blocks lie together. So every layout that vLLM
has becomes a list of `[blocks, bytes]` views, and a copy never needs to know what the bytes mean.
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from vllm.v1.kv_cache_interface import KVCacheConfig, is_full_attention_spec

# More runs than this and copying block by block would be no gain over computing them anew.
MOST_RUNS = 256


class SwapUnavailable(Exception):
    """Why this KV cache cannot be swapped, in one sentence."""


@dataclass(slots=True)
class Layer:
    """The KV cache of one layer, or of several that share it: views `[blocks, bytes]` of uint8."""

    names: list[str]
    parts: list[torch.Tensor]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in this layer."""
        return sum(part.shape[1] for part in self.parts)


def block_bytes(config: KVCacheConfig) -> int:
    """Bytes of one block over all layers, padding included.

    All layers share one allocation, whose size is known to the scheduler too. The specs are not:
    it is told of one where layers differ. They only serve where no allocation is planned.
    """
    _check(config)
    if config.kv_cache_tensors:
        return int(config.kv_cache_tensors[0].size) // int(config.num_blocks)
    group = config.kv_cache_groups[0]
    return int(group.kv_cache_spec.page_size_bytes) * len(group.layer_names)


def host_slots(config: KVCacheConfig, host_bytes: int) -> int:
    """Tell how many blocks `host_bytes` hold; none where the cache cannot be swapped.

    Both sides of the connector ask this, so that they agree without talking.
    """
    try:
        return max(host_bytes, 0) // block_bytes(config)
    except SwapUnavailable:
        return 0


def find_layers(kv_caches: dict[str, Any], config: KVCacheConfig) -> list[Layer]:
    """Map the KV cache, in the order in which layers run; raise `SwapUnavailable` if unsure."""
    most = block_bytes(config)
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
        raise SwapUnavailable("its layers are on several devices")
    return list(layers.values())


def _check(config: KVCacheConfig) -> None:
    """Refuse what is not one table of blocks that all hold plain attention over everything."""
    groups = config.kv_cache_groups
    if len(groups) != 1:
        raise SwapUnavailable(f"the model has {len(groups)} KV cache groups, not one")
    spec = groups[0].kv_cache_spec
    if not is_full_attention_spec(spec):
        raise SwapUnavailable(f"its KV cache is no full attention: {type(spec).__name__}")
    if any(tensor.host_resident for tensor in config.kv_cache_tensors):
        raise SwapUnavailable("its KV cache lives in host memory already")
    if len({tensor.size for tensor in config.kv_cache_tensors}) > 1:
        raise SwapUnavailable("its KV cache is several allocations of different size")
    if config.num_blocks < 1:
        raise SwapUnavailable("its KV cache has no blocks")


def _position(name: str) -> tuple[int, ...]:
    """`model.layers.10.self_attn.attn` -> (10,): layers run in the order of their numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", name))


def _parts(name: str, cache: Any, blocks: int) -> list[torch.Tensor]:
    """View one layer's cache as dense runs of bytes per block."""
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
    if len(offsets) > MOST_RUNS:
        raise SwapUnavailable(f"a block of {name} falls into {len(offsets)} pieces")
    raw = torch.empty(0, dtype=torch.uint8, device=view.device).set_(view.untyped_storage())
    return [raw.as_strided((blocks, run), (step, 1), offset) for offset in offsets]


def _blocks_first(name: str, cache: Any, blocks: int) -> torch.Tensor:
    """View a layer's cache as blocks, each of them kernels' blocks, each of them whatever it is.

    Attention kernels may see a block as several smaller ones, one after the other.
    """
    if not isinstance(cache, torch.Tensor) or cache.ndim < 2:
        raise SwapUnavailable(f"the cache of {name} is no tensor of blocks")
    if cache.shape[0] == 2 and cache.shape[1] % blocks == 0 and blocks > 2:
        cache = cache.movedim(1, 0)
    if cache.shape[0] % blocks or not cache.shape[0]:
        raise SwapUnavailable(f"no dimension of {name} is its {blocks} blocks: {cache.shape}")
    return cache.unflatten(0, (blocks, cache.shape[0] // blocks))


def _stride(dimension: tuple[int, int]) -> int:
    return dimension[1]
