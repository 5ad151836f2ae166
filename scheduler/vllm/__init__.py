"""The adapter to stock vLLM: scheduler classes for the engine process, a client for the API's.

The adapter does not patch vLLM. It uses `scheduler_cls`, `SamplingParams.extra_args`,
`RequestOutput.kv_transfer_params` and `AsyncLLM.generate()` over streaming input.
"""

# ruff: noqa: E402
from caesura.scheduler.vllm.orphan import end_with_server

# Before the slow imports: an engine whose parent is killed from here on ends within seconds.
end_with_server()

from caesura.scheduler.vllm.engine.connector import CaesuraConnector
from caesura.scheduler.vllm.engine.scheduler import CaesuraAsyncScheduler, CaesuraScheduler

__all__ = ["CaesuraAsyncScheduler", "CaesuraConnector", "CaesuraScheduler"]
