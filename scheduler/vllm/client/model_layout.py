"""The KV cache groups that vLLM makes of a model, from its configuration alone.

vLLM's own classes are built on torch's meta device, which has shapes and no memory. They tell the
KV of their layers as they tell vLLM's workers, and vLLM puts the layers into groups.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from vllm.config import VllmConfig, get_layers_from_vllm_config, set_current_vllm_config
from vllm.distributed.parallel_state import (
    cleanup_dist_env_and_memory,
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backends.utils import (
    get_supported_kv_cache_layouts,
    resolve_kv_cache_layout,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    iter_layer_specs,
)

from caesura.scheduler.errors import UsageError
from caesura.scheduler.model_facts import GroupFacts, LayoutFacts
from caesura.scheduler.vllm.client.launch import caesura_args, check_model, refusal
from caesura.scheduler.vllm.engine.connector import why_not_swapped
from caesura.scheduler.vllm.engine.port.layout import kind_of, layout_of, plan_of

ENOUGH = 1 << 50
"""Bytes of memory for KV, in which vLLM's check finds room for one request; none is allocated."""


def layout_of_model(model: str, engine_args: Mapping[str, Any]) -> LayoutFacts:
    """Return the groups of a model's KV cache, and what Caesura does with them at a pause.

    `engine_args` are fields of vLLM's `AsyncEngineArgs`. Where vLLM cannot build the model on this
    machine, the facts say what its configuration tells. Raises `UsageError` for a model whose
    configuration cannot be read or is refused.
    """
    check_model(model, ())
    try:
        given = {**caesura_args({}, {}), **engine_args, "skip_tokenizer_init": True}
        config = AsyncEngineArgs(model=model, **given).create_engine_config()
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise UsageError(refusal(model, error)) from error
    try:
        kv_cache = _kv_cache_of(config)
    except Exception as error:  # what a model's classes need differs by family
        first = (str(error) or type(error).__name__).partition("\n")[0]
        return LayoutFacts((), missing=first, configured=_configured(config))
    layout = layout_of(kv_cache, config.cache_config, config.num_speculative_tokens)
    return LayoutFacts(
        tuple(_group(group) for group in kv_cache.kv_cache_groups),
        discards=layout.discards,
        all_at_once=layout.all_at_once,
        no_follow_ups=layout.no_follow_ups,
        not_swapped=why_not_swapped(kv_cache),
    )


def _kv_cache_of(config: VllmConfig) -> KVCacheConfig:
    """Return the KV cache that a single worker would have; the memory is made up."""
    with _alone(config):
        dtype = config.model_config.dtype
        with set_default_torch_dtype(dtype), torch.device("meta"):
            initialize_model(vllm_config=config)
        current_platform.update_block_size_for_backend(config)
        layers = get_layers_from_vllm_config(config, AttentionLayerBase)
        found = {name: layer.get_kv_cache_spec(config) for name, layer in layers.items()}
        specs = {name: spec for name, spec in found.items() if spec is not None}
        register_all_kvcache_specs(config)
        backends = {layer.get_attn_backend() for layer in layers.values()}
        names = [one.name for one in get_supported_kv_cache_layouts(backends)]
        resolve_kv_cache_layout(config, [names], specs.values())
        return plan_of(config, specs, ENOUGH)


@contextmanager
def _alone(config: VllmConfig) -> Iterator[None]:
    """Make this process the only worker of an engine, as models are built in workers.

    Where an engine's worker runs in this process, it is one already, and stays one.
    """
    if model_parallel_is_initialized():
        with set_current_vllm_config(config):
            yield
        return
    with tempfile.TemporaryDirectory() as folder, set_current_vllm_config(config):
        meeting = f"file://{Path(folder, 'workers')}"
        init_distributed_environment(1, 0, meeting, 0, "gloo")
        try:
            initialize_model_parallel(1, 1)
            yield
        finally:
            cleanup_dist_env_and_memory()


def _group(group: KVCacheGroupSpec) -> GroupFacts:
    specs = list(iter_layer_specs(group.kv_cache_spec))
    layers = len(group.layer_names)
    page = sum(spec.page_size_bytes for spec in specs) * layers // len(specs)
    first = specs[0]
    state = isinstance(first, MambaSpec)
    window = getattr(first, "sliding_window", None) or getattr(first, "attention_chunk_size", None)
    return GroupFacts(
        kind=kind_of(first) or type(first).__name__,
        layers=layers,
        block_tokens=first.block_size,
        bytes_per_token=0 if state else page // first.block_size,
        bytes_per_request=page if state else 0,
        window=window or 0,
    )


def _configured(config: VllmConfig) -> str:
    """Return what the model's configuration tells of its layers."""
    text: Any = config.model_config.hf_text_config
    kinds = Counter(getattr(text, "layer_types", None) or ())
    told = [f"{count} of {kind}" for kind, count in kinds.items()]
    count = config.model_config.get_total_num_hidden_layers()
    return f"{count} layers{': ' if told else ''}{', '.join(told)}"
