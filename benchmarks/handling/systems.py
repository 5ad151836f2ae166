"""The systems under comparison: one engine at a time, all with the same settings of vLLM's."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.handling import OFFLOAD, SYSTEMS
from benchmarks.handling.model import SIZES, benchmark_model, load_format
from benchmarks.machine import number_type
from caesura.runtime.launch import default_args, prepare_environment

prepare_environment(None)

from vllm.config import KVTransferConfig  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402

from benchmarks.handling.ledger import (  # noqa: E402
    PausingAsyncLedgerScheduler,
    PausingLedgerScheduler,
    StockAsyncLedgerScheduler,
    StockLedgerScheduler,
)

BLOCK_SIZE = 32
CONTEXT_TOKENS = 2048


@dataclass(frozen=True)
class Settings:
    """Settings of vLLM's that all systems share, and what only those that pause need."""

    blocks: int
    model: str = "85m"
    batched_tokens: int = 512
    sequences: int = 64
    host_gib: float = 2
    swap: bool = True
    calibration: str | None = None
    link_gb_per_second: float | None = None
    """A limit of the link to the host; None leaves it as it is."""
    context_tokens: int = CONTEXT_TOKENS
    eager: bool = True
    """Whether nothing is compiled or captured in CUDA graphs."""
    asynchronous: bool = False
    """Whether the next step is scheduled while the last one runs."""


def connector(settings: Settings) -> KVTransferConfig:
    """Configure the connector that copies paused KV to the host and back."""
    limit = settings.link_gb_per_second
    return KVTransferConfig(
        kv_connector="CaesuraConnector",
        kv_connector_module_path="caesura.scheduler.vllm",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={
            "host_gib": settings.host_gib,
            **({} if limit is None else {"link_gb_per_second": limit}),
        },
    )


def _block_bytes(settings: Settings) -> int:
    return BLOCK_SIZE * SIZES[settings.model].kv_bytes_per_token(number_type())


def _pool(settings: Settings) -> dict[str, int]:
    """Return how large blocks are, and how many; the pool's first block is vLLM's placeholder.

    A recurrent state fills a block, whose tokens and number vLLM chooses then.
    """
    size = {"kv_cache_memory_bytes": (settings.blocks + 1) * _block_bytes(settings)}
    if SIZES[settings.model].stride > 1:
        return size
    return {**size, "block_size": BLOCK_SIZE, "num_gpu_blocks_override": settings.blocks + 1}


def _scheduler(pausing: bool, settings: Settings) -> type:
    if settings.asynchronous:
        return PausingAsyncLedgerScheduler if pausing else StockAsyncLedgerScheduler
    return PausingLedgerScheduler if pausing else StockLedgerScheduler


def engine_args(
    caesura: Mapping[str, Any] | None, settings: Settings, ledger: Path
) -> dict[str, Any]:
    """Return fields of vLLM's `AsyncEngineArgs`; systems differ in the scheduler alone.

    `caesura` are Caesura's settings, and None is vLLM's own scheduler.
    """
    pausing = caesura is not None
    args: dict[str, Any] = {
        **default_args(None),
        "model": benchmark_model(settings.model),
        "dtype": number_type(),
        "load_format": load_format(settings.model),
        "max_model_len": settings.context_tokens,
        "enforce_eager": settings.eager,
        "async_scheduling": settings.asynchronous,
        **_pool(settings),
        "max_num_seqs": settings.sequences,
        "max_num_batched_tokens": settings.batched_tokens,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "disable_log_stats": True,
        "scheduler_cls": _scheduler(pausing, settings),
        "additional_config": {"benchmark": {"ledger": str(ledger)}},
    }
    if caesura is not None:
        file = settings.calibration
        args["additional_config"]["caesura"] = {
            **caesura,
            **({} if file is None else {"calibration": file}),
        }
        if settings.swap:
            args["kv_transfer_config"] = connector(settings)
    return args


@asynccontextmanager
async def engine(system: str, settings: Settings, ledger: Path) -> AsyncIterator[AsyncLLM]:
    """Start an engine in a fresh process, and stop it at the end, whatever happens."""
    given = engine_args(SYSTEMS[system], settings, ledger)
    if system == OFFLOAD:
        given |= {"kv_offloading_size": settings.host_gib, "kv_offloading_backend": "native"}
    args = AsyncEngineArgs(**given)
    # In a thread, so that Ctrl-C is heard meanwhile.
    llm = await asyncio.to_thread(AsyncLLM.from_engine_args, args)
    try:
        yield llm
    finally:
        if llm.output_handler is not None:
            # It would take the end of the engine for its death, and say so at length.
            llm.output_handler.cancel()
        llm.shutdown()


def roomy(settings: Settings) -> Settings:
    """The same engine with room for everybody, to measure what the model costs by itself."""
    return replace(settings, blocks=2048, swap=False)
