"""The adapter to stock vLLM: scheduler classes for the engine process, a client for the API's.

Nothing in vLLM is patched; everything here hangs on `scheduler_cls`, `SamplingParams.extra_args`,
`RequestOutput.kv_transfer_params` and `AsyncLLM.generate()` over streaming input.
"""

from caesura.scheduler.vllm.scheduler import CaesuraAsyncScheduler, CaesuraScheduler

__all__ = ["CaesuraAsyncScheduler", "CaesuraScheduler"]
