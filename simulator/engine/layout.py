"""The KV cache of a machine as vLLM lays it out: groups of layers, pages, and numbers of blocks.

vLLM itself forms the groups and counts the blocks (`get_kv_cache_groups`), so that a simulated
scheduler has the KV cache manager that a real engine has: the hybrid coordinator, windows that
give blocks back, and states of recurrent layers at blocks' ends (`mamba_cache_mode`).
"""

from dataclasses import dataclass
from functools import cache

import torch
from vllm.config import CacheConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

from caesura.intercept.kv.views import Groups
from caesura.scheduler.vllm.engine.port.blocks import groups_of
from caesura.scheduler.vllm.engine.port.layout import planning
from caesura.simulator.machine import KVLayers, Machine

NUMBER = torch.bfloat16
"""The type of a number in the KV cache; only its size matters."""


def kv_spec(block_tokens: int) -> FullAttentionSpec:
    """Return the KV of one layer with one head of one number: 8 bytes a token.

    It stands for all layers of a model of full attention. Caesura's connector uses its
    `page_size_bytes` as the size of a block.
    """
    return FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32
    )


def layer_specs(
    layers: tuple[KVLayers, ...], block_tokens: int, model_tokens: int, caching: bool
) -> dict[str, KVCacheSpec]:
    """Return vLLM's spec of each layer, by a name of the layer's; the arguments are `lay_out`'s."""
    page = block_tokens * max(some.token_bytes for some in layers)
    return {
        f"{number}.{index}": _spec(some, block_tokens, page, model_tokens, caching)
        for number, some in enumerate(layers)
        for index in range(some.count)
    }


def _spec(some: KVLayers, size: int, page: int, model_tokens: int, caching: bool) -> KVCacheSpec:
    if some.state_bytes:
        return MambaSpec(
            block_size=size if caching else model_tokens,
            shapes=((some.state_bytes,),),
            dtypes=(torch.uint8,),
            page_size_padded=page,
            mamba_cache_mode="align" if caching else "none",
            num_prefill_checkpoint_blocks=int(some.saves_inside),
            prefill_checkpoint_alignment=1 if some.saves_inside else None,
        )
    numbers = some.token_bytes // (2 * NUMBER.itemsize)  # keys and values
    if some.window:
        return SlidingWindowSpec(
            block_size=size,
            num_kv_heads=1,
            head_size=numbers,
            dtype=NUMBER,
            sliding_window=some.window,
        )
    return FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=numbers, dtype=NUMBER)


@dataclass(frozen=True, slots=True)
class Layout:
    """The KV cache of a simulated engine, for vLLM's scheduler.

    `block_tokens` is the alignment of the scheduler, and `hashed_tokens` is what a hash of the
    prefix cache stands for. `group_bytes` are the bytes of a block, for each group: a group may
    have fewer layers than the largest.
    """

    config: KVCacheConfig
    block_tokens: int
    hashed_tokens: int
    group_bytes: tuple[int, ...]

    @property
    def blocks(self) -> int:
        """Return the blocks that requests can use, without vLLM's null block."""
        return int(self.config.num_blocks) - 1

    @property
    def attention_tokens(self) -> int:
        """Return the tokens of a block of attention, vLLM's `block_size`."""
        specs = [group.kv_cache_spec for group in self.config.kv_cache_groups]
        return min(int(spec.block_size) for spec in specs if not isinstance(spec, MambaSpec))

    @property
    def state_mode(self) -> str:
        """Return vLLM's `mamba_cache_mode`: `align`, or `none` also where nothing is recurrent."""
        specs = [group.kv_cache_spec for group in self.config.kv_cache_groups]
        modes = [spec.mamba_cache_mode for spec in specs if isinstance(spec, MambaSpec)]
        return modes[0] if modes else "none"

    @property
    def groups(self) -> Groups:
        """Return how the blocks of a request divide among the groups, for prices."""
        return groups_of(self.config)

    @property
    def planned_bytes(self) -> int:
        """Return the bytes of a block as the scheduler's connectors count them."""
        if self.config.kv_cache_tensors:
            return self.block_bytes
        return int(self.config.kv_cache_groups[0].kv_cache_spec.page_size_bytes)

    @property
    def block_bytes(self) -> int:
        """Return the bytes of the cache that a block takes, whichever group has it."""
        return max(self.group_bytes)

    def blocks_of(self, tokens: int, chunk_tokens: int) -> int:
        """Return the most blocks that a request of `tokens` tokens holds at a time."""
        return sum(
            _blocks_of(group.kv_cache_spec, tokens, chunk_tokens)
            for group in self.config.kv_cache_groups
        )


def _blocks_of(spec: KVCacheSpec, tokens: int, chunk_tokens: int) -> int:
    if isinstance(spec, SlidingWindowSpec):
        return int(spec.max_admission_blocks_per_request(chunk_tokens, tokens))
    if isinstance(spec, MambaSpec):
        spare = 2 + spec.num_prefill_checkpoint_blocks if spec.mamba_cache_mode == "align" else 1
        return int(spare)
    return -(-tokens // int(spec.block_size))


def lay_out(machine: Machine, model_tokens: int, caching: bool) -> Layout:
    """Return the layout on a machine for a model whose longest context is `model_tokens`.

    With prefix `caching` recurrent layers keep states at blocks' ends (vLLM's cache mode `align`),
    and else one state per request. Raises `ValueError` for a cache too small for a block.
    """
    size = machine.block_tokens
    if not machine.layers:
        group = KVCacheGroupSpec(["layer"], kv_spec(size))
        config = KVCacheConfig(
            num_blocks=machine.kv_tokens // size + 1, kv_cache_tensors=[], kv_cache_groups=[group]
        )
        return Layout(config, size, size, (size * machine.kv_bytes,))
    engine = _engine(size, caching)
    groups = _groups(machine.layers, size, model_tokens, caching)
    config = planning.get_kv_cache_config_from_groups(
        engine, list(groups), machine.kv_tokens * machine.kv_bytes
    )
    if config.num_blocks < 2:
        raise ValueError(f"the KV cache of {machine.name} holds no block: give it more memory")
    sizes = tuple(len(one.layer_names) * one.kv_cache_spec.page_size_bytes for one in groups)
    aligned, hashed = resolve_kv_cache_block_sizes(config, engine)
    return Layout(config, aligned, hashed, sizes)


@cache
def _groups(
    layers: tuple[KVLayers, ...], block_tokens: int, model_tokens: int, caching: bool
) -> tuple[KVCacheGroupSpec, ...]:
    specs = layer_specs(layers, block_tokens, model_tokens, caching)
    return tuple(planning.get_kv_cache_groups(_engine(block_tokens, caching), specs))


@cache
def _engine(block_tokens: int, caching: bool) -> VllmConfig:
    """Return as much of an engine's configuration as the layout depends on."""
    config = VllmConfig(
        scheduler_config=SchedulerConfig(max_model_len=8192, is_encoder_decoder=False),
        cache_config=CacheConfig(block_size=block_tokens, enable_prefix_caching=caching),
        parallel_config=ParallelConfig(),
    )
    # The order in memory; all layers here have pages of one size, so that it changes no number.
    config.cache_config.kv_cache_layout = "LBNHC"
    register_all_kvcache_specs(config)
    return config
