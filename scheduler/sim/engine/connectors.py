"""The KV connectors of simulated engines: how vLLM is told of them.

What a block of KV takes in the tiny model of the configuration has nothing to do with what it takes
on the simulated machine, so that host memory is counted in blocks.
"""

import mmap

import torch
from vllm.config import KVTransferConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec

from caesura.scheduler.sim.engine.tokens import BLOCK_TOKENS
from caesura.scheduler.sim.policy import Policy

SPEC = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=1, dtype=torch.float32)
"""KV of one layer with one head of one number."""

PLANNED_BYTES = SPEC.page_size_bytes
"""What our connector takes a block to have: 128 bytes."""

HOST_PAGE = mmap.PAGESIZE
"""What a block takes on the host in vLLM's own connector, which rounds up to whole pages."""


def connector_config(host_blocks: int, policy: Policy) -> KVTransferConfig | None:
    """Configure the policy's connector with so many blocks of host memory, if it has one."""
    if not host_blocks or policy.engine == "stock":
        return None
    if policy.engine == "stock-offload":
        return KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={"cpu_bytes_to_use": host_blocks * HOST_PAGE},
        )
    # Half a block more, so that rounding takes none away.
    host_gib = (host_blocks + 0.5) * PLANNED_BYTES / (1 << 30)
    return KVTransferConfig(
        kv_connector="CaesuraConnector",
        kv_connector_module_path="caesura.scheduler.vllm.swap.connector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"host_gib": host_gib, "in_step": policy.in_step},
    )
