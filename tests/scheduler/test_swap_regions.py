"""Where the bytes of a block lie: every layout of vLLM's, and what cannot be mapped."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    CrossAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache

from caesura.scheduler.vllm.engine.port.layout import planning
from caesura.scheduler.vllm.engine.swap.messages import Save
from caesura.scheduler.vllm.engine.swap.regions import (
    SwapUnavailable,
    block_bytes,
    find_layers,
    host_slots,
)
from caesura.scheduler.vllm.engine.swap.streams import StreamCopier
from caesura.scheduler.vllm.engine.swap.worker import SwapWorker

from .copying import (
    BLOCKS,
    CONFIG,
    HOST_BYTES,
    IN_ORDER,
    NAMES,
    SLOTS,
    SPEC,
    fill,
    in_step,
    later,
    make_caches,
    make_config,
    make_worker,
    step,
)
from .gpu import Gpu

SPLIT = [layout for layout in KVCacheLayout if layout.is_layer_compact and layout.is_block_compact]
LAYOUTS = [(layout, None) for layout in KVCacheLayout] + [(layout, 16) for layout in SPLIT]


@pytest.mark.parametrize(("layout", "kernel_block"), LAYOUTS)
def test_blocks_go_out_and_come_back_in_every_layout(
    layout: KVCacheLayout, kernel_block: int | None
) -> None:
    config = make_config(layout)
    sizes = [kernel_block] if kernel_block else None
    caches = fill(allocate_kv_cache(config, torch.device("cpu"), layout, sizes))
    worker = make_worker(caches, config=config)

    def block(name: str, index: int) -> torch.Tensor:
        return caches[name].unflatten(0, (BLOCKS, -1))[index].clone()

    def everything() -> list[list[torch.Tensor]]:
        return [[block(name, index) for index in range(BLOCKS)] for name in NAMES]

    expected = everything()
    step(worker, Save(1, [3, 1, 7, 8], [5, 0, 2, 3]), forward=False)
    step(worker, in_step([2, 1, 4, 11], [2, 5, 0, 3]))
    for layer in expected:
        layer[2], layer[1], layer[4], layer[11] = layer[7], layer[3], layer[1], layer[8]
    torch.testing.assert_close(everything(), expected, rtol=0, atol=0)
    worker.shutdown()


SHAPE = {"block_size": 32, "num_kv_heads": 4, "head_size": 8, "dtype": torch.bfloat16}
WINDOW = SlidingWindowSpec(**SHAPE, sliding_window=64)
STATE = MambaSpec(
    block_size=4096,
    shapes=((10, 12), (7, 9)),
    dtypes=(torch.float32, torch.bfloat16),
    page_size_padded=SPEC.page_size_bytes,
    mamba_cache_mode="none",
)


def planned(layout: KVCacheLayout, *groups: KVCacheGroupSpec) -> KVCacheConfig:
    """Return vLLM's own plan of a cache with these groups."""
    cache: Any = SimpleNamespace(
        get_resolved_kv_cache_layout=lambda: layout,
        prefix_cache_retention_interval=None,
        num_gpu_blocks_override=None,
    )
    attention = SimpleNamespace(hisparse_config=None)
    config: Any = SimpleNamespace(cache_config=cache, attention_config=attention)
    memory = 3 * BLOCKS * SPEC.page_size_bytes
    plan: KVCacheConfig = planning.get_kv_cache_config_from_groups(config, [*groups], memory)
    return plan


@pytest.mark.parametrize("layout", KVCacheLayout)
def test_groups_overlay_each_other_and_a_block_is_copied_whichever_has_it(
    layout: KVCacheLayout,
) -> None:
    groups = [
        KVCacheGroupSpec(["layers.0.full", "layers.3.full", "layers.6.full"], SPEC),
        KVCacheGroupSpec(["layers.1.window", "layers.4.window"], WINDOW),
        KVCacheGroupSpec(["layers.2.state", "layers.5.state", "layers.7.state"], STATE),
    ]
    config = planned(layout, *groups)
    assert config.num_blocks == BLOCKS
    caches = allocate_kv_cache(config, torch.device("cpu"), layout)
    whole = caches["layers.0.full"].untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8).set_(whole)
    raw.copy_(torch.randint(0, 256, raw.shape, dtype=torch.uint8))
    if not (layout.is_block_compact or layout.is_block_outermost):
        with pytest.raises(SwapUnavailable, match="not dense"):
            find_layers(caches, config)
        return
    worker = make_worker(caches, config=config)
    assert block_bytes(config) == 3 * SPEC.page_size_bytes

    def blocks(index: int) -> list[torch.Tensor]:
        return [cache[index].clone() for cache in caches.values()]

    expected = {index: blocks(index) for index in range(BLOCKS)}
    step(worker, Save(1, [3, 8], [5, 0]), forward=False)
    step(worker, later("a", [2, 11], [5, 0]))
    step(worker, forward=False)
    expected[2], expected[11] = expected[3], expected[8]
    for index, one in expected.items():
        torch.testing.assert_close(blocks(index), one, rtol=0, atol=0, equal_nan=True)
    worker.shutdown()


def test_keys_and_values_apart() -> None:
    caches = {name: torch.randn(2, BLOCKS, 32, 4, 8, dtype=torch.bfloat16) for name in NAMES}
    worker = make_worker(caches)
    kept = {name: cache[:, 5].clone() for name, cache in caches.items()}
    step(worker, Save(1, [5], [0]), forward=False)
    step(worker, in_step([6], [0]))
    for name, cache in caches.items():
        assert torch.equal(cache[:, 6], kept[name])
    worker.shutdown()


def test_layers_run_in_the_order_of_their_numbers_and_may_share_memory() -> None:
    caches = make_caches()
    caches["model.layers.30.attn"] = caches[NAMES[0]]
    layers = find_layers(caches, CONFIG)
    assert [layer.names[0] for layer in layers] == IN_ORDER
    assert layers[2].names == [NAMES[0], "model.layers.30.attn"]


def test_both_sides_agree_on_the_slots() -> None:
    assert host_slots(CONFIG, HOST_BYTES) == SLOTS == make_worker(make_caches()).slots
    assert block_bytes(CONFIG) == sum(
        layer.block_bytes for layer in find_layers(make_caches(), CONFIG)
    )
    mixed = UniformTypeKVCacheSpecs(block_size=32, kv_cache_specs=dict.fromkeys(NAMES, SPEC))
    assert host_slots(make_config(spec=mixed), HOST_BYTES) == SLOTS
    unallocated = KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec(NAMES, SPEC)])
    assert host_slots(unallocated, HOST_BYTES) == SLOTS
    assert host_slots(CONFIG, 0) == 0
    assert host_slots(make_config(groups=2), HOST_BYTES) == SLOTS
    assert host_slots(make_config(spec=CROSS), HOST_BYTES) == 0


CROSS = CrossAttentionSpec(**SHAPE)
ALL_STATES = replace(STATE, mamba_cache_mode="all")
APART = KVCacheConfig(
    BLOCKS,
    CONFIG.kv_cache_tensors,
    [KVCacheGroupSpec(NAMES[:2], SPEC), KVCacheGroupSpec(NAMES[2:], WINDOW)],
)
BAD = {
    "unknown": (make_config(spec=CROSS), lambda caches: caches),
    "all states": (make_config(spec=ALL_STATES), lambda caches: caches),
    "apart": (APART, lambda caches: {name: cache.clone() for name, cache in caches.items()}),
    "states": (CONFIG, lambda caches: caches | {NAMES[0]: [torch.zeros(1)]}),
    "missing": (CONFIG, lambda caches: {NAMES[0]: caches[NAMES[0]]}),
    "shape": (CONFIG, lambda caches: caches | {NAMES[0]: torch.zeros(BLOCKS + 1, 4)}),
    "flat": (CONFIG, lambda caches: caches | {NAMES[0]: torch.zeros(BLOCKS * 4)}),
    "large": (CONFIG, lambda caches: caches | {"layers.9": torch.zeros(BLOCKS, 4)}),
    "overlap": (CONFIG, lambda caches: caches | {NAMES[0]: torch.zeros(4).expand(BLOCKS, 4)}),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_mapped_switches_swapping_off(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, spoil = BAD[what]
    caches = spoil(make_caches())
    with pytest.raises(SwapUnavailable):
        find_layers(caches, config)
    with caplog.at_level(logging.WARNING):
        worker = make_worker(caches, config=config)
        assert_refuses(worker)
    assert len(caplog.records) == 1


def assert_refuses(worker: SwapWorker) -> None:
    orders = [Save(1, [1], [0]), in_step([2], [0]), later("a", [3], [0], last=False)]
    results, bad, report = step(worker, *orders)
    assert (bad, report.saved, report.failed) == ({2}, {}, {1: 1})
    assert not results.finished_recving
    results, _, _ = step(worker, later("a", [], []), later("b", [4], [1]))
    assert results.finished_recving == results.failed_recving == {"a", "b"}
    worker.shutdown()


def test_host_memory_that_cannot_be_had_switches_swapping_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()
    gpu.install(monkeypatch)
    gpu.refuse_pinning = True
    with caplog.at_level(logging.WARNING):
        assert_refuses(make_worker(make_caches(), StreamCopier))
    assert "cannot pin" in caplog.text
    assert not gpu.pinned
