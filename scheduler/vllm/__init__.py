"""The adapter to stock vLLM: scheduler classes for the engine process, a client for the API's.

The adapter does not patch vLLM. It uses `scheduler_cls`, `SamplingParams.extra_args`,
`RequestOutput.kv_transfer_params` and `AsyncLLM.generate()` over streaming input.
"""

from caesura.scheduler.vllm.scheduler import CaesuraAsyncScheduler, CaesuraScheduler

__all__ = ["CaesuraAsyncScheduler", "CaesuraScheduler"]
