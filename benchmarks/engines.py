"""Engines to measure, on the bundled model."""

from caesura.runtime.launch import BUNDLED_MODEL, default_args, prepare_environment

prepare_environment(None)

from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402

from caesura.scheduler.engine_options import EngineOptions  # noqa: E402
from caesura.scheduler.vllm.client.engine import VllmEngine  # noqa: E402
from caesura.scheduler.vllm.client.launch import start  # noqa: E402

BASELINE = "stock vLLM scheduler, prefix caching on, chunked prefill on"


def stock_engine() -> AsyncLLM:
    """Start vLLM as it comes; the settings are those of `caesura_engine`."""
    args = AsyncEngineArgs(model=BUNDLED_MODEL, **default_args(None))
    return AsyncLLM.from_engine_args(args)


def caesura_engine() -> VllmEngine:
    """Start vLLM with Caesura's scheduler."""
    return start(EngineOptions(BUNDLED_MODEL), default_args(None))
