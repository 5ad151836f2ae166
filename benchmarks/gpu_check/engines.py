"""The engines of the checks: Caesura's and vLLM's own, with the same settings."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.gpu_check.sizes import Scale
from benchmarks.handling.model import SIZES, benchmark_model, load_format
from caesura.runtime.launch import default_args, prepare_environment
from tests.engine.families import FAMILIES, model_of

prepare_environment(None)

from vllm import SamplingParams  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.inputs import tokens_input  # noqa: E402
from vllm.outputs import RequestOutput  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402

from caesura.scheduler.engine_options import EngineOptions  # noqa: E402
from caesura.scheduler.vllm.client.engine import VllmEngine  # noqa: E402
from caesura.scheduler.vllm.client.launch import start  # noqa: E402

BLOCK_SIZE = 32
FREE_AT_START = 0.1
"""The share of the device's memory that vLLM wants to be free when an engine starts. Its default
would refuse engines beside others. `kv_cache_memory_bytes` says what is then taken."""
FAMILY_KV_BYTES = 1 << 30
"""More than a tiny model's pool takes; `num_gpu_blocks_override` says how much it is."""
STATE_BLOCKS = 3
"""What a request may hold of a group of recurrent states: its own, one to copy, one to keep."""


def engine_args(
    scale: Scale, model: str, context: int, blocks: int, dtype: str | None = None
) -> dict[str, Any]:
    """Return the fields of vLLM's `AsyncEngineArgs` that both kinds of engine share."""
    dtype = dtype or ("bfloat16" if scale.on_device else "float32")
    block_bytes = BLOCK_SIZE * SIZES[model].kv_bytes_per_token(dtype)
    share = {"gpu_memory_utilization": FREE_AT_START} if scale.on_device else {}
    return {
        **default_args(None),
        "dtype": dtype,
        "load_format": load_format(model),
        "max_model_len": context,
        "block_size": BLOCK_SIZE,
        # The pool's first block is vLLM's placeholder, which no request may use.
        "num_gpu_blocks_override": blocks + 1,
        "kv_cache_memory_bytes": (blocks + 1) * block_bytes,
        "enforce_eager": not scale.on_device,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "disable_log_stats": True,
        **share,
    }


def family_args(family: str, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for a tiny model of a family, whose blocks have sizes of vLLM's."""
    groups = len(FAMILIES[family].groups)
    return {
        **usual,
        "dtype": FAMILIES[family].dtype,
        "load_format": "auto",
        # vLLM wants room in every group for the longest request and the largest step.
        "num_gpu_blocks_override": groups * usual["num_gpu_blocks_override"],
        "kv_cache_memory_bytes": FAMILY_KV_BYTES,
        "async_scheduling": True,
    }


async def scarce(model: str, args: Mapping[str, Any], sessions: int) -> dict[str, Any]:
    """Return arguments with a pool that holds a third of so many sessions, and at least one.

    A recurrent state takes a block as large as those of many tokens: vLLM says how many once it has
    started.
    """
    if model not in FAMILIES or not FAMILIES[model].recurrent:
        return dict(args)
    async with ours(model, args, {}, 1) as engine:
        size = (await engine.command("facts"))["block_size"]
    most = args["max_model_len"]
    each = sum(
        STATE_BLOCKS if kind == "state" else -(-most // size) + 1 for kind in FAMILIES[model].groups
    )
    return {**args, "num_gpu_blocks_override": max(each, each * sessions // 3) + 1}


@asynccontextmanager
async def ours(
    model: str, args: Mapping[str, Any], settings: Mapping[str, Any], host_gib: float
) -> AsyncIterator[VllmEngine]:
    """Start an engine with Caesura's scheduler and connector; stop it at the end."""
    options = EngineOptions(_directory(model), settings=settings, connector={"host_gib": host_gib})
    launched = await asyncio.to_thread(start, options, args)
    try:
        yield launched
    finally:
        await launched.close()


def _directory(model: str) -> str:
    """Return where a model is: one of a size, or a tiny one of a family."""
    return model_of(model) if model in FAMILIES else benchmark_model(model)


@asynccontextmanager
async def stock(model: str, args: Mapping[str, Any]) -> AsyncIterator[AsyncLLM]:
    """Start vLLM as it comes; stop it at the end."""
    made = AsyncEngineArgs(model=benchmark_model(model), **args)
    llm = await asyncio.to_thread(AsyncLLM.from_engine_args, made)
    try:
        yield llm
    finally:
        if llm.output_handler is not None:
            # It would take the end of the engine for its death, and say so at length.
            llm.output_handler.cancel()
        llm.shutdown()


def greedy(tokens: int, **options: Any) -> SamplingParams:
    """Return the parameters of a request that decodes so many tokens greedily."""
    return SamplingParams(
        max_tokens=tokens,
        temperature=0,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        **options,
    )


async def outputs_of(
    llm: AsyncLLM, tokens: Sequence[int], params: SamplingParams, name: str
) -> list[RequestOutput]:
    """Run a request of its own to its end; return its outputs."""
    return [output async for output in llm.generate(tokens_input(list(tokens)), params, name)]
