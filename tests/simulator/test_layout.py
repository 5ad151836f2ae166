"""Layouts of models whose layers differ, against what vLLM makes of their public configurations."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.model_executor.models import ModelRegistry
from vllm.platforms.interface import Platform
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
)

from caesura.intercept.kv.views import ONE_GROUP, Groups
from caesura.scheduler.vllm.engine.port.blocks import BlockSizes
from caesura.scheduler.vllm.engine.port.layout import plan_of
from caesura.scheduler.vllm.engine.scheduler import PausingScheduler
from caesura.simulator.engine import simulate
from caesura.simulator.engine.layout import lay_out
from caesura.simulator.engine.run import Member, prepare
from caesura.simulator.latency.analytic import Experts, Roofline
from caesura.simulator.latency.hybrid import (
    GEMMA_3_27B,
    GPT_OSS_120B,
    NEMOTRON_3_NANO_30B,
    QWEN_3_NEXT_80B,
    Hybrid,
)
from caesura.simulator.latency.machines import MACHINES, PLANS, make_machine
from caesura.simulator.machine import KVLayers, Machine, StepShape, pairs_within
from caesura.simulator.policy import POLICIES

from .layered import CONFIGS, GEMMA, GPT, NAMES, NEMOTRON, QWEN, kinds_of
from .simulated import STOCK, crowd, first_computations, session, workload

LONGEST = 32_768


@cache
def engine_of(name: str, folder: Path) -> VllmConfig:
    """Return vLLM's configuration of the model, with the block size that a GPU would have."""
    hf, architecture, devices = CONFIGS[name]
    hf.architectures = [architecture]
    hf.save_pretrained(folder)
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(folder),
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=LONGEST,
        ),
        scheduler_config=SchedulerConfig(max_model_len=LONGEST, is_encoder_decoder=False),
        cache_config=CacheConfig(block_size=16, enable_prefix_caching=True),
        parallel_config=ParallelConfig(tensor_parallel_size=devices),
    )
    config.cache_config.block_size = 16  # the default on GPUs
    config.cache_config.mamba_page_size_padded = None
    config.cache_config.kv_cache_layout = "LBNHC"
    if config.model_config.is_hybrid:
        Platform._align_hybrid_block_size(config, FlashAttentionBackend)
    register_all_kvcache_specs(config)
    return config


def spec_of(kind: str, name: str, config: VllmConfig) -> KVCacheSpec:
    """Return the spec of a layer as vLLM's layers make it from the configuration."""
    hf, architecture, devices = CONFIGS[name]
    cached = config.cache_config
    if kind in ("linear_attention", "mamba"):
        model, _ = ModelRegistry.resolve_model_cls(architecture, model_config=config.model_config)
        inside = int(kind == "mamba")
        return MambaSpec(
            block_size=cached.mamba_block_size,
            shapes=tuple(model.get_mamba_state_shape_from_config(config)),
            dtypes=model.get_mamba_state_dtype_from_config(config),
            page_size_padded=cached.mamba_page_size_padded,
            mamba_cache_mode=cached.mamba_cache_mode,
            num_prefill_checkpoint_blocks=inside,
            prefill_checkpoint_alignment=inside or None,
        )
    attention: dict[str, Any] = {
        "block_size": cached.block_size,
        "num_kv_heads": hf.num_key_value_heads // devices,
        "head_size": hf.head_dim,
        "dtype": torch.bfloat16,
    }
    if kind == "sliding_attention":
        return SlidingWindowSpec(sliding_window=hf.sliding_window, **attention)
    return FullAttentionSpec(**attention)


def shape_of(config: KVCacheConfig) -> dict[str, Any]:
    """Return what a scheduler sees of a KV cache: its groups and the number of blocks."""
    groups = []
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        kept = getattr(spec, "sliding_window", None), getattr(spec, "mamba_cache_mode", None)
        size = spec.block_size, spec.page_size_bytes, len(group.layer_names)
        groups.append((type(spec).__name__, *size, *kept))
    return {"blocks": config.num_blocks, "groups": sorted(groups, key=str)}


@pytest.mark.parametrize("name", NAMES)
def test_groups_and_blocks_are_those_of_vllm(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = engine_of(name, tmp_path_factory.mktemp(name))
    specs = {
        f"layer.{index}": spec_of(kind, name, config) for index, kind in enumerate(kinds_of(name))
    }
    machine = MACHINES[name]
    memory = machine.kv_tokens * machine.kv_bytes
    vllms = plan_of(config, specs, memory)
    ours = lay_out(machine, LONGEST, caching=True)
    assert shape_of(ours.config) == shape_of(vllms)
    assert ours.blocks == vllms.num_blocks - 1
    assert machine.block_tokens == config.cache_config.block_size == ours.hashed_tokens
    size = vllms.kv_cache_tensors[0].size // vllms.num_blocks
    assert ours.block_bytes == ours.planned_bytes == size == machine.block_tokens * machine.kv_bytes
    assert BlockSizes(vllms, workers=2).block_bytes == 2 * size


@pytest.mark.parametrize(
    ("model", "all_of_them", "active"),
    [
        (QWEN_3_NEXT_80B, 79.7, 3.6),
        (GPT_OSS_120B, 116.8, 5.13),
        (NEMOTRON_3_NANO_30B, 31.6, 3.2),
        (GEMMA_3_27B, 27.0, 27.0),
    ],
)
def test_parameters_are_those_that_the_authors_state(
    model: Hybrid, all_of_them: float, active: float
) -> None:
    assert model.parameters / 1e9 == pytest.approx(all_of_them, rel=2e-3)
    assert model.active / 1e9 == pytest.approx(active, rel=0.012)


def test_the_checkpoint_of_gpt_oss_has_the_size_of_its_model_card() -> None:
    assert GPT_OSS_120B.bytes / 2**30 == pytest.approx(60.8, rel=3e-3)


def test_without_prefix_caching_a_request_has_one_state() -> None:
    layout = lay_out(MACHINES[QWEN], LONGEST, caching=False)
    assert layout.state_mode == "none"
    # Three groups of recurrent layers, and full attention.
    assert layout.blocks_of(5440, 2048) == 3 + 10
    cached = lay_out(MACHINES[QWEN], LONGEST, caching=True)
    assert cached.state_mode == "align" and cached.blocks_of(5440, 2048) == 3 * 2 + 10
    # Mamba-2 keeps the state at a block's end within a step, in a block of its own.
    assert lay_out(MACHINES[NEMOTRON], LONGEST, caching=True).blocks_of(4192, 2048) == 4 * 3 + 2


def test_windows_hold_no_more_than_their_tokens() -> None:
    layout = lay_out(MACHINES[GPT], LONGEST, caching=True)
    long, longer = layout.blocks_of(8192, 512), layout.blocks_of(16_384, 512)
    assert longer - long == 512  # of the group of full attention alone
    assert long == 512 + (127 + 512 + 15) // 16 + 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", ["fcfs", "stock", "stock-offload", "infercept", "vllm-discard"])
def test_no_token_and_no_block_is_lost(name: str, policy: str) -> None:
    work = crowd(0)
    blocks = lay_out(MACHINES[name], 2048, caching=True).blocks_of(2048, 2048) * 3
    machine = MACHINES[name]
    small = replace(machine, kv_tokens=blocks * machine.block_tokens)
    run = simulate(work, small, POLICIES[policy], check=True)
    totals = run.totals
    assert [one.key for one in run.sessions if one.ended] == [one.key for one in work.sessions]
    assert totals.prefill_tokens + totals.decode_tokens == first_computations(work)
    assert totals.recompute_tokens == sum(one.recomputed_tokens for one in run.sessions)


def test_a_prefix_of_a_recurrent_model_is_found_at_ends_of_blocks_only() -> None:
    one = session("one", (1300, 3, 1.0), (5, 2))
    (found,) = simulate(workload(one), MACHINES[QWEN], STOCK, check=True).sessions
    assert (found.cached_tokens, found.recomputed_tokens) == (1088, 1302 - 1088)
    (held,) = simulate(workload(one), MACHINES[QWEN], POLICIES["fcfs"], check=True).sessions
    assert held.recomputed_tokens == 0  # it was held, with its state


# -- the time of steps ----------------------------------------------------------------------------


@given(st.integers(0, 5000), st.integers(1, 3000), st.integers(1, 2000))
def test_pairs_within_a_window_one_by_one(start: int, count: int, window: int) -> None:
    end = start + count
    assert pairs_within(window, start, end) == sum(
        min(place, window) for place in range(start + 1, end + 1)
    )


def test_a_window_hides_what_is_behind_it() -> None:
    full = replace(roofline(GPT), windowed=None)
    model = roofline(GPT)
    assert model.windowed is not None
    near, far = (
        model.seconds(StepShape(1, 1, 1, context, context, 0.0, 128)) for context in (128, 65_536)
    )
    growing = full.seconds(StepShape(1, 1, 1, 65_536, 65_536, 0.0)) - full.seconds(
        StepShape(1, 1, 1, 128, 128, 0.0)
    )
    assert far - near == pytest.approx(growing)
    unseen = model.seconds(StepShape(1, 1, 1, 128, 128, 0.0, 0))
    assert near - unseen == pytest.approx(128 * 18 * 2048 / model.bandwidth)


def test_a_state_costs_each_sequence_the_same_however_long_it_is() -> None:
    model = roofline(NEMOTRON)
    stateless = replace(model, state_bytes=0.0)
    each = 2 * 23 * 2_134_016 / model.bandwidth
    for context in (10, 100_000):
        step = StepShape(8, 8, 8, 8 * context, context, 0.0)
        assert model.seconds(step) - stateless.seconds(step) == pytest.approx(8 * each)


def test_more_tokens_read_more_experts_up_to_all() -> None:
    experts = Experts(1e9, 4 / 128)
    assert experts.read(1) == pytest.approx(1e9 * 4 / 128)
    assert experts.read(2) == pytest.approx(1e9 * (1 - (124 / 128) ** 2))
    read = [experts.read(tokens) for tokens in (1, 4, 64, 512, 4096)]
    assert all(less < more for less, more in pairwise(read)) and read[-1] == pytest.approx(1e9)


def roofline(name: str) -> Roofline:
    latency = PLANS[name].latency
    assert isinstance(latency, Roofline)
    return latency


# -- specs ----------------------------------------------------------------------------------------


def test_a_smaller_cache_has_as_many_blocks_fewer() -> None:
    machine = make_machine(f"{QWEN}:kv=54400")
    assert lay_out(machine, LONGEST, caching=True).blocks == 99
    assert machine.layers == MACHINES[QWEN].layers


def test_blocks_must_hold_a_state() -> None:
    assert make_machine(f"{QWEN}:block=1088").block_tokens == 1088
    with pytest.raises(ValueError, match="at least 544 tokens, got 528"):
        make_machine(f"{QWEN}:block=528")
    with pytest.raises(ValueError, match="either tokens or a state"):
        KVLayers(3, token_bytes=10, state_bytes=10)


def test_a_session_must_fit_with_its_windows_and_states() -> None:
    one = workload(session("one", (2000, 3)))
    assert simulate(one, sized(NEMOTRON, 15), STOCK).sessions[0].ended
    with pytest.raises(ValueError, match="does not fit into the 12 blocks of 2096 tokens"):
        simulate(one, sized(NEMOTRON, 13), STOCK)


def sized(name: str, blocks: int) -> Machine:
    return replace(MACHINES[name], kv_tokens=blocks * MACHINES[name].block_tokens)


# -- what the engine's prices go by ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "caching", "groups", "size"),
    [
        (QWEN, True, Groups(states=3), 544),
        (QWEN, False, Groups(states=3), 544),
        (GPT, True, Groups(windows=(8,)), 16),
        (NEMOTRON, True, Groups(states=4), 2096),
        (GEMMA, True, Groups(windows=(64,) * 6), 16),
        ("llama-3.1-8b-h100", True, ONE_GROUP, 16),
    ],
)
def test_an_engine_s_prices_know_its_groups(
    name: str, caching: bool, groups: Groups, size: int
) -> None:
    policy = replace(POLICIES["infercept"], prefix_caching=caching)
    prepared = prepare(Member(crowd(0), MACHINES[name], policy))
    assert isinstance(prepared.scheduler, PausingScheduler)
    view = prepared.scheduler.parts.manager.views.step()
    assert (view.groups, view.block_size) == (groups, size)
    prepared.close()


def test_a_pause_loses_its_states_too() -> None:
    one = workload(session("one", (1300, 3, 1.0), (5, 2)))
    run = simulate(one, MACHINES[QWEN], POLICIES["infercept"], records=True)
    (begun,) = [row for row in run.records if row["kind"] == "opening"]
    inputs = begun["inputs"]
    # Three blocks of full attention, and one for each of three groups of states.
    assert begun["blocks"] == 6 == inputs["resident"] == inputs["uncopied"]
