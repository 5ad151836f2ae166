"""The configuration of vLLM's KV connectors in simulated engines.

Host memory is counted in blocks, since a block of the configured tiny model has another size than a
block on the simulated machine.
"""

import mmap

import torch
from vllm.config import KVTransferConfig
from vllm.utils.math_utils import round_up
from vllm.v1.kv_cache_interface import FullAttentionSpec

from caesura.simulator.policy import Policy


def kv_spec(block_tokens: int) -> FullAttentionSpec:
    """Return the KV of one layer with one head of one number: 8 bytes a token.

    Caesura's connector uses its `page_size_bytes` as the size of a block.
    """
    return FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32
    )


def connector_config(
    host_blocks: int, block_tokens: int, policy: Policy
) -> KVTransferConfig | None:
    """Return the policy's connector with `host_blocks` of host memory; None without one."""
    if not host_blocks or policy.engine == "stock":
        return None
    block_bytes = kv_spec(block_tokens).page_size_bytes
    if policy.engine == "stock-offload":
        # vLLM's own connector rounds the size of a block on the host up to whole pages.
        host_bytes = host_blocks * round_up(block_bytes, mmap.PAGESIZE)
        return KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"cpu_bytes_to_use": host_bytes},
        )
    # Half a block more, so that rounding does not lose a block.
    host_gib = (host_blocks + 0.5) * block_bytes / (1 << 30)
    return KVTransferConfig(
        kv_connector="CaesuraConnector",
        kv_connector_module_path="caesura.scheduler.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"host_gib": host_gib, "in_step": policy.in_step},
    )
